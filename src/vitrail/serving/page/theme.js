// Light or dark: as the system has it, until someone says otherwise.

import { find } from "./dom.js";
import { change, state, subscribe } from "./state.js";
import { say } from "./words.js";

const KEY = "vitrail-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

export function startTheme() {
  apply(localStorage.getItem(KEY) ?? "system");
  find("theme").addEventListener("click", () => {
    const next = isDark() ? "light" : "dark";
    localStorage.setItem(KEY, next);
    apply(next);
  });
  dark.addEventListener("change", () => change({}));
  subscribe(() => {
    find("theme").textContent = say(isDark() ? "light" : "dark");
  });
}

function isDark() {
  return state.theme === "dark" || (state.theme === "system" && dark.matches);
}

function apply(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  change({ theme });
}
