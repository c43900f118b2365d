// A few steps that teach, beside the page and not over it: each shows on the reader's own image what it says.

import { find, make } from "./dom.js";
import { change, state, subscribe } from "./state.js";
import { VIEWS } from "./views.js";
import { say } from "./words.js";

// What the page does while a step is read. A step is passed over where the model does not have its view, or where it
// would not be true: `fits`.
const STEPS = [
  { name: "patch", fits: ({ patch_size }) => patch_size !== null, show: () => ({ view: "patches", token: "read", pinned: false }) },
  { name: "convolution", fits: ({ patch_size }) => patch_size === null, show: () => ({ view: "patches", token: "read", pinned: false }) },
  { name: "token", fits: ({ patch_size }) => patch_size !== null, show: () => ({ view: "patches", ...middle() }) },
  { name: "attention", show: () => ({ view: "attention", layer: 0, head: 0, ...middle() }) },
  { name: "rollout", show: () => ({ view: "rollout", token: "read", pinned: false }) },
  { name: "layers", show: () => ({ view: "lens" }) },
  { name: "proof", fits: ({ can }) => can.attention, show: () => ({ view: "cover" }) },
  { name: "removal", fits: ({ can }) => !can.attention, show: () => ({ view: "cover" }) },
];

const steps = () => STEPS.filter(({ fits, show: shows }) => (fits?.(state.model) ?? true) && VIEWS.find((view) => view.name === shows().view).can(state.model));

const narrow = matchMedia("(max-width: 520px)");

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
  if (!state.model) return;
  opener = document.activeElement;
  go(0);
}

// A patch to begin with, which gives way to the one that the reader points at.
function middle() {
  const { grid, prefix_tokens: prefix } = state.model;
  return { token: prefix + Math.floor(grid[0] / 2) * grid[1] + Math.floor(grid[1] / 2), pinned: false };
}

function close() {
  place = -1;
  find("tour").hidden = true;
  find("help").setAttribute("aria-expanded", "false");
  document.body.classList.remove("touring");
  if (!state.pinned) change({ token: "read" });
  (opener ?? find("help")).focus();
}

function go(to) {
  place = to;
  change(steps()[place].show());
  show(true);
  // On a phone the tour lies over the end of the page: what it speaks of is brought above it.
  if (narrow.matches && state.images.a) requestAnimationFrame(() => find("panel").scrollIntoView({ block: "start" }));
}

function show(takeFocus) {
  const tour = find("tour");
  const all = steps();
  // Another model that is served meanwhile may have fewer.
  place = Math.min(place, all.length - 1);
  const { name } = all[place];
  const isLast = place === all.length - 1;
  const title = make("h2", { tabIndex: -1, textContent: say(`tour_${name}`) });
  tour.replaceChildren(
    make("p", { class: "quiet", textContent: say("tourPlace", { n: place + 1, of: all.length }) }),
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
