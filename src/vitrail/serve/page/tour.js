// Five steps that teach, beside the page and not over it: each shows on the reader's own image what it says.

import { find, make } from "./dom.js";
import { change, state, subscribe } from "./state.js";
import { VIEWS } from "./views.js";
import { say } from "./words.js";

// What the page does while a step is read; a view that this model does not have is passed over.
const STEPS = [
  { name: "patch", show: () => ({ view: "patches", token: "read", pinned: false }) },
  { name: "token", show: () => ({ view: "equations", step: 1 }) },
  { name: "attention", show: () => ({ view: "attention", layer: 0, head: 0, ...middle() }) },
  { name: "layers", show: () => ({ view: "lens" }) },
  { name: "proof", show: () => ({ view: "cover" }) },
];

let place = -1;
let opener = null;

export function startTour() {
  find("help").addEventListener("click", () => (place < 0 ? openTour() : close()));
  let language = null;
  subscribe(() => {
    if (place >= 0 && language !== state.language) show(false);
    language = state.language;
  });
}

export function openTour() {
  opener = document.activeElement;
  go(0);
}

function middle() {
  const { grid, prefix_tokens: prefix } = state.model;
  return { token: prefix + Math.floor(grid[0] / 2) * grid[1] + Math.floor(grid[1] / 2), pinned: true };
}

function close() {
  place = -1;
  find("tour").hidden = true;
  find("help").setAttribute("aria-expanded", "false");
  document.body.classList.remove("touring");
  (opener ?? find("help")).focus();
}

function go(to) {
  place = to;
  if (state.model) {
    const wanted = STEPS[place].show();
    const view = VIEWS.find((one) => one.name === wanted.view);
    if (view.can(state.model)) change(wanted);
  }
  show(true);
}

function show(takeFocus) {
  const tour = find("tour");
  const { name } = STEPS[place];
  const isLast = place === STEPS.length - 1;
  const title = make("h2", { tabIndex: -1, textContent: say(`tour_${name}`) });
  tour.replaceChildren(
    make("p", { class: "quiet", textContent: say("tourPlace", { n: place + 1, of: STEPS.length }) }),
    title,
    make("p", { textContent: say(`tour_${name}_words`) }),
    make("p", { class: "try", textContent: say(`tour_${name}_try`) }),
    ...(isLast ? [make("details", {}, make("summary", { textContent: say("keys") }), make("p", { textContent: say("keysWords") }))] : []),
    make("div", { class: "row" },
      make("button", { type: "button", id: "tour-back", textContent: say("back"), disabled: place === 0, onclick: () => go(place - 1) }),
      isLast ? null : make("button", { type: "button", id: "tour-next", class: "main", textContent: say("next"), onclick: () => go(place + 1) }),
      make("button", { type: "button", id: "tour-close", class: isLast ? "main" : "", textContent: say(isLast ? "done" : "close"), onclick: close })),
  );
  tour.hidden = false;
  tour.onkeydown = (event) => {
    if (event.key === "Escape") close();
  };
  find("help").setAttribute("aria-expanded", "true");
  document.body.classList.add("touring");
  if (takeFocus) title.focus({ preventScroll: true });
}
