// Hovering says numbers, and two lists choose an effect and a task.  Without this script the first of each is shown.
"use strict";
{
document.documentElement.classList.add("js");
const tip = document.getElementById("tip");
function show(event) {
  const mark = event.target.closest("[data-tip]");
  if (!mark) { tip.hidden = true; return; }
  tip.textContent = mark.dataset.tip;
  tip.hidden = false;
  const box = mark.getBoundingClientRect();
  const left = Math.min(window.scrollX + box.right + 8, window.scrollX + document.documentElement.clientWidth - tip.offsetWidth - 8);
  tip.style.left = Math.max(left, 4) + "px";
  tip.style.top = window.scrollY + box.top - tip.offsetHeight - 6 + "px";
}
for (const kind of ["pointerover", "focusin"]) document.addEventListener(kind, show);
document.addEventListener("focusout", () => { tip.hidden = true; });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
function choose(name, value) {
  for (const part of document.querySelectorAll(`[data-${name}-panel]`)) part.hidden = part.getAttribute(`data-${name}-panel`) !== value;
}
const effect = document.getElementById("effect");
if (effect) effect.addEventListener("change", () => choose("effect", effect.value));
const task = document.getElementById("task");
function mark() {
  for (const part of document.querySelectorAll("svg .task")) part.classList.toggle("chosen", part.dataset.task === task.value);
}
if (task) {
  task.addEventListener("change", () => { choose("task", task.value); mark(); });
  mark();
  for (const part of document.querySelectorAll("svg .task")) part.addEventListener("click", () => {
    if (![...task.options].some((option) => option.value === part.dataset.task)) return;
    task.value = part.dataset.task;
    task.dispatchEvent(new Event("change"));
  });
}
}
