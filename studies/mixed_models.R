# Fit a random intercept, and one with a random slope, to each file. One line per estimate: file, structure, CPU seconds,
# name, value; theta is the Cholesky factor of the covariance by columns.
# Arguments: lme4 or glmmTMB, family, slope ("" for none), file of the estimates, files of rows.
a <- commandArgs(TRUE)
suppressMessages(library(a[1], character.only = TRUE))
for (f in a[-(1:4)]) for (random in c("1", if (a[3] != "") paste("1 +", a[3]))) {
  d <- read.csv(f)
  x <- paste(c("1", setdiff(names(d), c("y", "g"))), collapse = " + ")
  formula <- as.formula(paste0("y ~ ", x, " + (", random, " | g)"))
  setTimeLimit(cpu = 300, transient = TRUE)
  cpu <- system.time(e <- tryCatch(suppressMessages(suppressWarnings(if (a[1] == "lme4") {
    m <- glmer(formula, d, a[2], control = glmerControl(optimizer = "nloptwrap", calc.derivs = FALSE))
    c(fixef(m), theta = getME(m, "theta"))
  } else {
    m <- glmmTMB(formula, d, if (a[2] == "poisson") nbinom2 else a[2])
    L <- t(chol(matrix(VarCorr(m)$cond$g, nrow = nrow(VarCorr(m)$cond$g))))
    c(fixef(m)$cond, theta = L[lower.tri(L, TRUE)], dispersion = if (a[2] == "poisson") 1 / sigma(m) else NULL)
  })), error = function(e) c(failed = NA)))
  setTimeLimit()
  cat(sprintf("%s,%s,%.2f,%s,%.15g\n", f, random, sum(cpu[1:2]), names(e), e), file = a[4], append = TRUE, sep = "")
}
