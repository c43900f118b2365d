// Covering patches: the one test here that asks the answer itself.

import { make, percent } from "./dom.js";
import { cover as ask } from "./looked.js";
import { needsImage, opening } from "./panel.js";
import { strongest } from "./rows.js";
import { change, state } from "./state.js";
import { className, number, say } from "./words.js";

let parts = null;

export const cover = {
  name: "cover",
  covers: true,
  can: (model) => model.can.occlusion,
  mount,
  update,
  data: (image) => ({ covered: state.covered, before: image.top, after: image.cover?.top?.slice(0, 5) ?? null }),
};

function mount(panel) {
  parts = { count: make("p", { class: "said", id: "cover-said" }), empty: needsImage() };
  const of = state.model.grid[0] * state.model.grid[1];
  const share = Math.max(1, Math.round(0.1 * of));
  const button = (id, words, act) => make("button", { type: "button", id, textContent: words, onclick: act });
  const suggestions = [];
  if (state.model.can.rollout) {
    suggestions.push(button("cover-seen", say("coverSeen", { n: number(share), of: number(of) }), () => {
      const values = state.images.a?.rollout?.flat();
      if (values) set(strongest(values, share).map(({ patch }) => patch));
    }));
  }
  suggestions.push(button("cover-random", say(state.model.can.rollout ? "coverRandom" : "coverSome", { n: number(share), of: number(of) }), () => set(atRandom(share))));
  panel.append(
    ...opening("cover"), parts.empty,
    make("div", { class: "row" }, ...suggestions, button("uncover", say("uncover"), () => set([]))),
    parts.count,
    make("p", { class: "quiet", textContent: say("coverHow") }),
    make("h3", { textContent: say("coverTry") }),
    make("ul", {}, ...["coverTry1", "coverTry2", ...(state.model.can.rollout ? ["coverTry3"] : [])].map((name) => make("li", { textContent: say(name) }))),
  );
}

function update() {
  const image = state.images.a;
  parts.empty.hidden = Boolean(image?.seen);
  if (image?.seen && !image.pending) ask(image, state.covered);
  parts.count.textContent = words(image);
}

function words(image) {
  if (!image?.top || !image.cover?.top) return say("nothingCovered");
  const first = image.top[0];
  const now = image.cover.top.find((entry) => entry.index === first.index);
  const values = { n: state.covered.length, name: className(first), before: percent(first.probability), after: now ? percent(now.probability) : say("veryLittle") };
  const other = image.cover.top[0];
  return other.index === first.index ? say("coverSaid", values) : say("coverTurned", { ...values, other: className(other) });
}

const set = (covered) => change({ covered: [...covered].sort((a, b) => a - b) });

function atRandom(count) {
  const rest = Array.from({ length: state.model.grid[0] * state.model.grid[1] }, (_, patch) => patch);
  return Array.from({ length: count }, () => rest.splice(Math.floor(Math.random() * rest.length), 1)[0]);
}
