// What the page says, in the language of the reader.

import { english } from "./words.en.js";
import { korean } from "./words.ko.js";
import { change, state } from "./state.js";

const LANGUAGES = { en: english, ko: korean };
const KEY = "vitrail-language";

// A sentence that would be wrong for another kind of network has one of its own there: title_cover, and title_cover_bit for BiT and
// for what else cuts no patches; where convolutions stand before the patches, words that end in _stem.
export function say(name, values = {}) {
  const spoken = LANGUAGES[state.language];
  const { kind, patch_size: cut, stem } = state.model ?? {};
  const words = spoken[`${name}_${cut === null ? "bit" : kind}`] ?? (stem && spoken[`${name}_stem`]) ?? spoken[name] ?? english[name] ?? name;
  return words.replace(/\{(\w+)\}/g, (whole, key) => (key in values ? String(values[key]) : whole));
}

export const number = (value) => value.toLocaleString(state.language);

// Tokens, layers and heads are counted from 0, rows and columns are the 1st, the 2nd ...: so one is not taken for the other.
const ENDINGS = { one: "st", two: "nd", few: "rd", other: "th" };
const ordinals = new Intl.PluralRules("en", { type: "ordinal" });
const ordinal = (value) => (state.language === "en" ? `${value}${ENDINGS[ordinals.select(value)]}` : value);

export function className(entry) {
  return entry.label ?? say("classNumber", { index: entry.index });
}

export function tokenName(token) {
  const { prefix_tokens: prefix, class_token: classToken, grid } = state.model;
  if (token === "read") return say(classToken ? "classToken" : "allPatches");
  if (token < prefix) return classToken && token === 0 ? say("classToken") : say("register", { n: token - Number(classToken) + 1 });
  const patch = token - prefix;
  return say("patchAt", { n: token, row: ordinal(Math.floor(patch / grid[1]) + 1), column: ordinal((patch % grid[1]) + 1) });
}

export function startLanguage() {
  const kept = localStorage.getItem(KEY);
  const wished = kept ?? (navigator.language?.startsWith("ko") ? "ko" : "en");
  speak(wished in LANGUAGES ? wished : "en");
}

export function switchLanguage() {
  const next = state.language === "en" ? "ko" : "en";
  localStorage.setItem(KEY, next);
  speak(next);
}

function speak(language) {
  change({ language });
  document.documentElement.lang = language;
  for (const element of document.querySelectorAll("[data-word]")) element.textContent = say(element.dataset.word);
  for (const element of document.querySelectorAll("[data-label]")) {
    element.setAttribute("aria-label", say(element.dataset.label));
  }
  const other = document.getElementById("language");
  other.textContent = language === "en" ? "한국어" : "English";
  other.lang = language === "en" ? "ko" : "en";
}
