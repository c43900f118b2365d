// Parts that several views share: how a view opens, sliders, tables that say what a picture shows.

import { make } from "./dom.js";
import { change, state } from "./state.js";
import { say } from "./words.js";

export function opening(name, values) {
  return [make("h2", { textContent: say(`title_${name}`) }), make("p", { class: "lead", textContent: say(`lead_${name}`, values) })];
}

export function caution(words) {
  return make("p", { class: "caution", textContent: words });
}

// A slider with its name, and its value in words.
export function slider(id, name, low, high, read, write, words) {
  const value = make("output", { id: `${id}-value`, for: id });
  const input = make("input", {
    type: "range", id, min: low, max: high, step: 1,
    oninput: () => write(Number(input.value)),
  });
  const row = make("div", { class: "slider" }, make("label", { for: id, textContent: name }), input, value);
  const update = () => {
    const now = read();
    if (Number(input.value) !== now) input.value = now;
    value.textContent = words(now);
    input.setAttribute("aria-valuetext", words(now));
  };
  return { row, update };
}

export function layerSlider() {
  return slider("layer", say("layer"), 0, state.model.depth - 1, () => state.layer, (layer) => change({ layer }), (layer) => say("layerOf", { n: layer, last: state.model.depth - 1 }));
}

export function headSlider() {
  return slider("head", say("head"), -1, state.model.num_heads - 1, () => state.head, (head) => change({ head }), (head) => (head < 0 ? say("meanHead") : say("headOf", { n: head, last: state.model.num_heads - 1 })));
}

export function mixSlider() {
  return slider("mix", say("mix"), 0, 100, () => Math.round(100 * state.mix), (mix) => change({ mix: mix / 100 }), (mix) => `${mix} %`);
}

// A button that goes back to what the head reads.
export function readButton() {
  const button = make("button", {
    type: "button", id: "class-token",
    textContent: say(state.model.class_token ? "classTokenButton" : "allPatchesButton"),
    onclick: () => change({ token: "read", pinned: false, hover: null }),
  });
  const registers = Array.from({ length: state.model.registers ?? 0 }, (_, place) =>
    make("button", {
      type: "button", textContent: say("register", { n: place + 1 }),
      onclick: () => change({ token: place + Number(state.model.class_token), pinned: true }),
    }),
  );
  const row = make("div", { class: "row" }, button, ...registers);
  const update = () => button.setAttribute("aria-pressed", String(state.token === "read"));
  return { row, update };
}

// Numbers as a table, for those who cannot see the picture and for those who want to read them off.
export function numbersTable(id) {
  const holder = make("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": say("asTable") });
  const details = make("details", { class: "as-table", id }, make("summary", { textContent: say("asTable") }), holder);
  let last = null;
  const update = (key, rows, columns, rowNames, write = (value) => value.toFixed(4)) => {
    details.hidden = !rows;
    if (!rows || !details.open || key === last) return;
    last = key;
    const head = make("tr", {}, make("td"), ...columns.map((name) => make("th", { scope: "col", textContent: name })));
    const body = rows.map((row, place) =>
      make("tr", {}, make("th", { scope: "row", textContent: rowNames[place] }), ...Array.from(row, (value) => make("td", { textContent: write(value) }))),
    );
    holder.replaceChildren(make("table", { class: "numbers" }, make("thead", {}, head), make("tbody", {}, ...body)));
  };
  details.addEventListener("toggle", () => change({}));
  return { details, update };
}

export function gridTable(id) {
  const table = numbersTable(id);
  const update = (overlay) => {
    const [height, width] = state.model.grid;
    const values = overlay?.values ?? null;
    const rows = values && Array.from({ length: height }, (_, row) => Array.from(values).slice(row * width, (row + 1) * width));
    const digits = overlay?.scale === "signed" ? 3 : 5;
    table.update(values, rows, range(width).map((n) => say("columnN", { n: n + 1 })), range(height).map((n) => say("rowN", { n: n + 1 })), (value) => value.toFixed(digits));
  };
  return { details: table.details, update };
}

export const range = (count) => Array.from({ length: count }, (_, place) => place);

export function needsImage() {
  return make("p", { class: "quiet", textContent: say("needsImage") });
}
