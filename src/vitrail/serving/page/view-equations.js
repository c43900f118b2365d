// The four equations of the paper, walked through with the shapes of this model and a token of this image.

import { equationOf, POSITION_ROWS } from "./equation-terms.js";
import { make, percent } from "./dom.js";
import { looking, strongest } from "./rows.js";
import { change, shownToken, state, tokenNumbers } from "./state.js";
import { className, number, say, tokenName } from "./words.js";

let parts = null;

// Each step: which equation, which of its terms lights up, the shapes that go in and come out, and the code that does it.
function steps() {
  const { model } = state;
  const n = model.grid[0] * model.grid[1];
  const t = model.tokens;
  const cut = [n, tokenNumbers()];
  const image = [...model.image_size, model.channels];
  const one = [t, model.width];
  const found = [
    { name: "cut", equation: 1, term: "patch", from: image, ...(model.stem ? { to: model.stem.map, back: cut } : { to: cut }), code: ["models/embedding.py", "PatchEmbedding.forward"] },
    { name: "project", equation: 1, term: "project", from: cut, to: [n, model.width], code: ["models/embedding.py", "PatchEmbedding.forward"] },
  ];
  if (model.prefix_tokens) found.push({ name: model.class_token ? "class" : "noClass", equation: 1, term: "class", from: [n, model.width], to: one, code: ["models/vit.py", "VisionTransformer.place"] });
  if (POSITION_ROWS[model.position]) found.push({ name: POSITION_ROWS[model.position], equation: 1, term: "position", from: one, to: one, code: ["models/vit.py", "VisionTransformer.place"] });
  found.push(
    { name: "heads", equation: 2, term: "attention", from: one, to: [model.num_heads, t, t], code: ["models/attention.py", "Attention.weights"] },
    { name: "residual", equation: 2, term: "residual", from: one, to: one, code: ["models/block.py", "Block.forward"] },
    { name: "mlp", equation: 3, term: "mlp", from: one, to: [t, model.mlp_width], back: one, code: ["models/mlp.py", "Mlp.forward"] },
    { name: "read", equation: 4, term: "read", from: one, to: [model.width], code: model.pool === "map" ? ["models/pooling.py", "AttentionPooling.forward"] : ["models/vit.py", "VisionTransformer.read"] },
  );
  if (model.num_classes) found.push({ name: "answer", equation: 4, term: "answer", from: [model.width], to: [model.num_classes], code: ["models/classifier.py", "Classifier.forward"] });
  return found;
}

export const equations = {
  name: "equations",
  tokens: true,
  can: (model) => Boolean(model.depth),
  mount,
  update,
  data: () => ({ step: state.step, steps: steps().map(({ name, equation, from, to, code }) => ({ name, equation, from, to, code })) }),
};

function mount(panel) {
  const all = steps();
  parts = {
    all,
    strip: make("div", { class: "equations", id: "equations" }),
    title: make("h3", { id: "step-title", "aria-live": "polite" }),
    words: make("p", {}),
    shapes: make("p", { class: "shapes", id: "shapes" }),
    yours: make("p", { class: "yours" }),
    code: make("p", { class: "quiet" }),
    dots: make("div", { class: "dots", role: "group", "aria-label": say("steps") }),
    back: make("button", { type: "button", id: "step-back", textContent: say("back"), onclick: () => change({ step: Math.max(0, state.step - 1) }) }),
    next: make("button", { type: "button", id: "step-next", class: "main", textContent: say("next"), onclick: () => change({ step: Math.min(all.length - 1, state.step + 1) }) }),
  };
  parts.rows = [1, 2, 3, 4].map((place) => {
    const row = make("div", { class: "equation" }, equationOf(place, state.model), make("span", { class: "place", textContent: `(${place})` }));
    row.dataset.equation = place;
    return row;
  });
  parts.strip.append(...parts.rows);
  parts.dots.append(...all.map((one, place) => make("button", { type: "button", "aria-label": say("stepN", { n: place + 1, name: say(`step_${one.name}`) }), onclick: () => change({ step: place }) })));
  panel.append(
    make("h2", { textContent: say("title_equations") }),
    make("p", { class: "lead", textContent: say("lead_equations") }),
    parts.strip,
    make("div", { class: "step" }, parts.title, parts.words, parts.shapes, parts.yours, parts.code),
    make("div", { class: "row walk" }, parts.back, parts.dots, parts.next),
  );
}

function update() {
  const { all } = parts;
  const place = Math.min(all.length - 1, Math.max(0, state.step));
  const step = all[place];
  for (const row of parts.rows) {
    row.classList.toggle("now", Number(row.dataset.equation) === step.equation);
    for (const term of row.querySelectorAll("[data-term]")) term.classList.toggle("lit", Number(row.dataset.equation) === step.equation && term.dataset.term.split(" ").includes(step.term));
  }
  parts.title.textContent = `${place + 1}. ${say(`step_${step.name}`)}`;
  const { model } = state;
  const values = { tokens: number(model.tokens), dim: number(model.width), heads: model.num_heads, headDim: model.head_dim, mlp: number(model.mlp_width), layers: model.depth, classes: number(model.num_classes), h: model.patch_size[0], w: model.patch_size[1], n: number(model.grid[0] * model.grid[1]) };
  parts.words.textContent = say(step.name === "read" ? `words_read_${model.pool}` : `words_${step.name}`, values);
  parts.shapes.replaceChildren(...shapes(step));
  parts.yours.textContent = yours(step);
  parts.code.textContent = say("inCode", { file: `src/vitrail/${step.code[0]}`, part: step.code[1] });
  parts.back.disabled = place === 0;
  parts.next.disabled = place === all.length - 1;
  [...parts.dots.children].forEach((dot, one) => dot.setAttribute("aria-current", one === place ? "step" : "false"));
}

function shapes(step) {
  const box = (shape) => make("span", { class: "shape", textContent: shape.map(number).join(" × ") });
  const arrow = () => make("span", { class: "arrow", "aria-label": say("becomes"), role: "img", textContent: "→" });
  return [step.from, step.to, step.back].filter(Boolean).flatMap((shape, place) => (place ? [arrow(), box(shape)] : [box(shape)]));
}

// What this step is for the token that is looked from, in this image.
function yours(step) {
  const image = state.images.a;
  if (!image?.seen) return say("stepNeedsImage");
  const token = shownToken();
  const name = tokenName(token);
  const isPatch = token !== "read" ? token >= state.model.prefix_tokens : !state.model.class_token;
  if ((step.name === "cut" || step.name === "project") && !isPatch) return say("notYet", { name });
  if (step.equation === 1) return say("yourToken", { name });
  if (step.name === "heads") {
    if (!state.model.can.attention) return say("looksUnseen");
    const found = looking(image, state.layer, state.head, token);
    if (!found) return "";
    const best = strongest(found.patches, 1)[0];
    const other = best.patch + state.model.prefix_tokens;
    return say("yourLook", { name, layer: state.layer, other: other === token ? say("itself") : tokenName(other), share: percent(best.value) });
  }
  if ((step.name === "residual" || step.name === "mlp") && image.lens) {
    const first = image.lens[state.layer].top[0];
    const then = image.lens[state.layer + 1].top[0];
    return say("yourBlock", { layer: state.layer, before: className(first), p: percent(first.probability, 0), after: className(then), q: percent(then.probability, 0) });
  }
  if (step.name === "answer" && image.top) return say("yourAnswer", { name: className(image.top[0]), share: percent(image.top[0].probability) });
  return "";
}
