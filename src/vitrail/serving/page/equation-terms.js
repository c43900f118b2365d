// Equations (1) to (4) in MathML, as they hold for this model; the terms carry names so that one can be lit.

import { math } from "./dom.js";

// The step that adds positions to tokens: rows that were learnt, or that are computed. Other kinds add nothing in (1).
export const POSITION_ROWS = { learned_1d: "position", learned_2d: "position", sincos_2d: "fixedPosition", sinusoid_1d: "fixedPosition" };

const i = (name) => math("mi", name);
const bold = (name) => {
  const element = math("mi", name);
  element.setAttribute("mathvariant", "normal");
  element.classList.add("bold");
  return element;
};
const o = (sign) => math("mo", sign);
const n = (value) => math("mn", String(value));
const row = (...children) => math("mrow", ...children);
const sub = (base, below) => math("msub", base, below);
const sup = (base, above) => math("msup", base, above);
const both = (base, below, above) => math("msubsup", base, below, above);
const word = (name) => math("mtext", name);

function term(names, ...children) {
  const element = row(...children);
  element.dataset.term = names;
  return element;
}

const z = (below, above = null) => (above ? both(bold("z"), below, above) : sub(bold("z"), below));
const previous = () => row(i("ℓ"), o("−"), n(1));

export function equationOf(place, model) {
  const element = math("math", [null, first, second, third, fourth][place](model));
  element.setAttribute("displaystyle", "true");
  return element;
}

// z_0 = [x_class; x_p^1 E; ...; x_p^N E] + E_pos, where the model adds positions
function first(model) {
  const count = model.grid[0] * model.grid[1];
  const patch = (above) => row(term("patch project", both(bold("x"), i("p"), above)), term("project", bold("E")));
  const tokens = [];
  if (model.class_token) tokens.push(term("class", sub(bold("x"), word("class"))), o(";"));
  if (model.registers) tokens.push(term("class", sub(bold("x"), word(`reg 1…${model.registers}`))), o(";"));
  tokens.push(patch(n(1)), o(";"), patch(n(2)), o(";"), o("⋯"), o(";"), patch(n(count)));
  const places = POSITION_ROWS[model.position] ? [o("+"), term("position", sub(bold("E"), word("pos")))] : [];
  return row(z(n(0)), o("="), o("["), ...tokens, o("]"), ...places);
}

// z'_l = MSA(LN(z_{l-1})) + z_{l-1}
function second(model) {
  return row(
    math("msub", row(bold("z"), o("′")), i("ℓ")), o("="),
    term("attention", word("MSA"), o("("), word("LN"), o("("), z(previous()), o(")"), o(")")),
    o("+"), term("residual", z(previous())), o(","), math("mspace"), i("ℓ"), o("="), n(1), o("…"), n(model.depth),
  );
}

// z_l = MLP(LN(z'_l)) + z'_l
function third(model) {
  const between = () => math("msub", row(bold("z"), o("′")), i("ℓ"));
  return row(
    z(i("ℓ")), o("="), term("mlp", word("MLP"), o("("), word("LN"), o("("), between(), o(")"), o(")")),
    o("+"), between(), o(","), math("mspace"), i("ℓ"), o("="), n(1), o("…"), n(model.depth),
  );
}

// y = LN(z_L^0); or what the head reads instead of a class token
function fourth(model) {
  const last = n(model.depth);
  const read = {
    token: () => row(word("LN"), o("("), z(last, n(0)), o(")")),
    mean: () => row(math("mfrac", n(1), n(model.grid[0] * model.grid[1])), math("munder", o("∑"), i("i")), word("LN"), o("("), z(last, i("i")), o(")")),
    map: () => row(word("MAP"), o("("), word("LN"), o("("), z(last), o(")"), o(")")),
  }[model.pool]();
  const found = [term("read", bold("y"), o("="), read)];
  if (model.num_classes) found.push(o(","), math("mspace"), term("answer", word("logits"), o("="), word("head"), o("("), bold("y"), o(")")));
  return row(...found);
}
