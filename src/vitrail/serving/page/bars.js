// The answer as bars, and beside them what it was before something was covered.

import { find, make, percent } from "./dom.js";
import { noticing, state, subscribe } from "./state.js";
import { className, say } from "./words.js";

let told = null;

export function startBars() {
  const place = find("answer");
  const isNew = noticing();
  subscribe(() => {
    const image = state.images.a;
    const covers = state.view === "cover" && image?.cover?.top ? image.cover : null;
    place.classList.toggle("waiting", Boolean(image) && isOutOfDate(image));
    if (!isNew(image, image?.top, image?.pending, image?.error, image?.cover, image?.cover?.top, state.view, state.language)) return;
    showBars(place, image, covers);
    tell(image, covers);
  });
}

// With the server gone, what is shown may be the answer to what was drawn before.
const isOutOfDate = (image) => state.connection.kind === "gone" && (state.drawing || image.pending);

// Rows are kept and moved, so that a bar grows or shrinks before the eyes of the reader.
export function showBars(place, image, covered = null) {
  if (!image?.top) {
    place.replaceChildren();
    return;
  }
  let list = place.querySelector("ol");
  if (!list || list.dataset.kind !== String(Boolean(covered))) {
    list = make("ol", { class: "bars" });
    list.dataset.kind = String(Boolean(covered));
    place.replaceChildren(make("h2", { textContent: say("answer") }), make("div", { class: "notes" }), list);
  }
  place.querySelector("h2").textContent = say(covered ? "answerCovered" : "answer");
  place.querySelector(".notes").replaceChildren(...notes(image));
  const now = covered ? new Map(covered.top.map((entry) => [entry.index, entry.probability])) : null;
  const rows = covered ? together(image.top, covered.top) : image.top;
  while (list.children.length > rows.length) list.lastChild.remove();
  rows.forEach((entry, place_) => {
    const row = list.children[place_] ?? list.appendChild(emptyRow(Boolean(covered)));
    fill(row, entry, now);
    row.classList.toggle("best", entry.index === (covered ?? image).top[0].index);
  });
}

// The five classes of before, and a new first one if there is one.
function together(before, after) {
  const known = before.some((entry) => entry.index === after[0].index);
  return known ? before : [...before, { ...after[0], probability: null }];
}

function emptyRow(isDouble) {
  const bars = isDouble ? [make("span", { class: "bar before" }), make("span", { class: "bar" })] : [make("span", { class: "bar" })];
  return make("li", {}, make("span", { class: "label" }), make("span", { class: "track" }, ...bars), make("span", { class: "share" }));
}

function fill(row, entry, now) {
  const before = entry.probability;
  const after = now ? now.get(entry.index) ?? null : null;
  row.querySelector(".label").textContent = className(entry);
  row.dataset.index = entry.index;
  row.dataset.probability = now ? after ?? "" : before;
  const share = row.querySelector(".share");
  if (now) {
    row.querySelector(".bar.before").style.width = `${100 * (before ?? 0)}%`;
    row.querySelector(".bar:not(.before)").style.width = `${100 * (after ?? 0)}%`;
    const words = after === null ? "–" : percent(after);
    const change = before === null || after === null || Math.abs(after - before) < 0.0005 ? "" : signed(after - before);
    share.replaceChildren(words, make("small", { class: change.startsWith("−") ? "less" : "more", textContent: change }));
  } else {
    row.querySelector(".bar").style.width = `${100 * before}%`;
    share.textContent = percent(before);
  }
}

function signed(difference) {
  const points = 100 * difference;
  return `${points < 0 ? "−" : "+"}${Math.abs(points).toFixed(1)}`;
}

function notes(image) {
  const found = [image.note, image.frames > 1 ? say("frames", { n: image.frames }) : null, image.error ?? null, image.cover?.error ?? null];
  return found.filter(Boolean).map((words) => make("p", { class: "note", textContent: words }));
}

function tell(image, covered) {
  const top = covered?.top ?? image?.top;
  if (!top || image.pending) return;
  const words = say(covered ? "tellCovered" : "tellAnswer", { name: className(top[0]), share: percent(top[0].probability) });
  if (words !== told) find("live").textContent = told = words;
}
