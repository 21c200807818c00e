# Fit the mixed models of one split, select one by AIC, and write what predictions of new groups need.
# Arguments: kind (gauss, binary, count), fixed columns, columns that may get random slopes in this order, column that may be
# a factor instead of a number ("" for none), file of rows, file of results.  The file of rows has y, g, role, the columns, and
# for counts with exposure the column offset.
suppressMessages({library(lme4); library(glmmTMB)})
a <- commandArgs(TRUE)
kind <- a[1]; fixed <- strsplit(a[2], " ")[[1]]; slopes <- strsplit(a[3], " ")[[1]]; year <- a[4]
d <- read.csv(a[5], stringsAsFactors = TRUE)
d$g <- factor(d$g)
if (year != "") d$year_factor <- factor(d[[year]])
known <- d$role == "T"

fit <- function(m, reml = FALSE) {
  f <- paste("y ~", paste(c("1", m$fixed), collapse = " + "), "+ (", paste(c("1", m$random), collapse = " + "), "| g)")
  if ("offset" %in% names(d)) f <- paste(f, "+ offset(offset)")
  f <- as.formula(f)
  rows <- droplevels(d[known, ])
  tryCatch(suppressMessages(suppressWarnings(switch(kind,
    gauss = lmer(f, rows, REML = reml, control = lmerControl(calc.derivs = FALSE)),
    binary = glmer(f, rows, family = binomial, nAGQ = if (length(slopes)) 1 else 15,
                   control = glmerControl(calc.derivs = FALSE, optimizer = "nloptwrap")),
    count = glmmTMB(f, rows, family = m$family)))), error = function(e) NULL)
}
aic <- function(model) if (is.null(model) || is.na(AIC(model))) Inf else AIC(model)

cpu <- system.time({
  candidates <- list()
  for (columns in c(list(fixed), if (year != "") list(c(setdiff(fixed, year), "year_factor"))))
    for (family in if (kind == "count") c("poisson", "nbinom2") else "")
      candidates <- c(candidates, list(list(fixed = columns, random = character(), family = family)))
  models <- lapply(candidates, fit)
  best <- which.min(sapply(models, aic))
  chosen <- candidates[[best]]; model <- models[[best]]; lowest <- aic(model)
  for (n in seq_along(slopes)) {
    more <- modifyList(chosen, list(random = slopes[1:n]))
    other <- fit(more)
    if (aic(other) < lowest) { chosen <- more; model <- other; lowest <- aic(other) }
  }
  if (kind == "gauss" && !is.null(again <- fit(chosen, reml = TRUE))) model <- again
})

is_tmb <- kind == "count"
b <- if (is_tmb) fixef(model)$cond else fixef(model)
b[is.na(b)] <- 0
new <- d[!known, ]
X <- model.matrix(as.formula(paste("~", paste(c("1", chosen$fixed), collapse = " + "))), new)
eta <- as.numeric(X[, names(b), drop = FALSE] %*% b)  # an unseen category is the reference category
Z <- model.matrix(as.formula(paste("~", paste(c("1", chosen$random), collapse = " + "))), new)
W <- matrix(as.numeric(if (is_tmb) VarCorr(model)$cond$g else VarCorr(model)$g), nrow = ncol(Z))
scale <- if (kind == "gauss") sigma(model)^2 else if (chosen$family == "nbinom2") sigma(model) else NA
write.csv(list(eta = eta, Z = Z), paste0(a[6], "-rows.csv"), row.names = FALSE)
write.csv(W, paste0(a[6], "-W.csv"), row.names = FALSE)
write.csv(data.frame(scale = scale, cpu = sum(cpu[1:2]), random = paste(chosen$random, collapse = " "),
                     factor = "year_factor" %in% chosen$fixed), paste0(a[6], "-model.csv"), row.names = FALSE)
