# Export the multilevel data sets of the benchmark and the gallery:  Rscript benchmarks/export_multilevel.R FOLDER
# Needs the R packages mlmRev, nlme, lme4 and bayesm.  `studies/data.py` and docs/gallery read the files.

folder <- commandArgs(trailingOnly = TRUE)
if (length(folder) != 1) stop("usage: Rscript export_multilevel.R FOLDER")
dir.create(folder, recursive = TRUE, showWarnings = FALSE)

sets <- list(
  mlmRev = c("Hsb82", "Exam", "egsingle", "Early"),
  nlme = c("bdf", "Oxboys"),
  lme4 = "sleepstudy",
  bayesm = "cheese"
)

for (package in names(sets)) {
  if (!requireNamespace(package, quietly = TRUE)) {
    message("skipped ", paste(sets[[package]], collapse = ", "), ": the package ", package, " is not installed")
    next
  }
  for (name in sets[[package]]) {
    space <- new.env()
    data(list = name, package = package, envir = space)
    file <- file.path(folder, paste0(name, ".csv"))
    # nlme's sets are of a class of their own, with a formula in it: plain columns are all that is wanted.
    write.csv(as.data.frame(space[[name]]), file, row.names = FALSE)
    message("written: ", file)
  }
}
