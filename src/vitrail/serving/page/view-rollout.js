// Attention followed back through all layers: which patches the answer was made from (Figure 6, D.8).

import { make } from "./dom.js";
import { caution, gridTable, mixSlider, needsImage, opening } from "./panel.js";
import { asShares } from "./rows.js";
import { state } from "./state.js";
import { say } from "./words.js";

let parts = null;

export const rollout = {
  name: "rollout",
  points: true,
  can: (model) => model.can.rollout,
  mount,
  update,
  overlay: rolloutOverlay,
  data: (image) => ({ rollout: image.rollout }),
};

export function rolloutOverlay(image) {
  return image.rollout ? { ...asShares(image.rollout.flat(), say("rolloutWords")), isStill: true } : null;
}

function mount(panel) {
  parts = { mix: mixSlider(), table: gridTable("rollout-table"), empty: needsImage() };
  panel.append(...opening("rollout", { layers: state.model.depth }), parts.empty, parts.mix.row, parts.table.details, make("p", { textContent: say("rolloutHow") }), caution(say("notProof")));
}

function update() {
  const image = state.images.a;
  parts.empty.hidden = Boolean(image?.seen);
  parts.mix.update();
  parts.table.update(image?.seen ? rolloutOverlay(image) : null);
}
