// What the colours of a window stand for, the number under the pointer, and that a patch is pinned.

import { make } from "./dom.js";
import { change, state } from "./state.js";
import { presentView } from "./views.js";
import { say, tokenName } from "./words.js";

export class Legend {
  // Its parts are made once: a button that is pressed must not be replaced meanwhile.
  constructor() {
    this.from = make("span");
    this.ramp = make("span", { "aria-hidden": "true" });
    this.to = make("span");
    this.what = make("span", { class: "what" });
    this.letGo = make("button", { type: "button", class: "let-go", onclick: () => change({ pinned: false, token: "read" }) });
    this.row = make("div", { class: "legend" }, this.from, this.ramp, this.to, this.what, this.letGo);
  }

  show(overlay, isSeen) {
    const view = presentView();
    const hasMap = Boolean(view.overlay) && state.model.can.attention;
    const isPinned = Boolean(view.tokens) && state.pinned;
    this.row.hidden = !isSeen || !(hasMap || isPinned);
    // Where a map is on its way its legend has its place already.
    this.row.classList.toggle("coming", hasMap && !overlay?.values);
    this.row.classList.toggle("plain", !hasMap);
    this.letGo.hidden = !isPinned;
    this.letGo.textContent = say("letGo");
    for (const part of [this.from, this.ramp, this.to]) part.hidden = !hasMap;
    if (overlay?.values) {
      this.from.textContent = written(overlay, overlay.low);
      this.ramp.className = `ramp ${overlay.scale}`;
      this.to.textContent = written(overlay, overlay.high);
    }
    this.what.textContent = numberUnder(overlay) ?? overlay?.words ?? tokenName(state.token);
  }
}

// The number of the patch under the pointer, where the pointer does not change the map itself.
export function numberUnder(overlay) {
  const patch = state.hover === null ? -1 : state.hover - state.model.prefix_tokens;
  if (!overlay?.values || patch < 0 || !(overlay.isStill || state.pinned)) return null;
  return `${tokenName(state.hover)}: ${written(overlay, overlay.values[patch])}`;
}

function written({ scale }, value) {
  return scale === "signed" ? value.toFixed(2).replace("-", "−") : `${(100 * value).toFixed(value < 0.1 ? 2 : 1)} %`;
}
