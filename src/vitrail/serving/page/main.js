// The page starts here.

import { intoRange, startAddress } from "./address.js";
import { askJson, hooks } from "./api.js";
import { startBars } from "./bars.js";
import { startConnection } from "./connection.js";
import { find, make } from "./dom.js";
import { Glass, tellToken } from "./glass.js";
import { startIntake } from "./intake.js";
import { startKeeping } from "./keeping.js";
import { look } from "./looked.js";
import { startPad } from "./pad.js";
import { change, state, subscribe } from "./state.js";
import { startTheme } from "./theme.js";
import { askToken } from "./token.js";
import { startTour } from "./tour.js";
import { startViews, VIEWS } from "./views.js";
import { number, say, startLanguage, switchLanguage } from "./words.js";

hooks.token = askToken;
hooks.generation = (generation) => {
  if (state.model && generation !== state.model.generation) anotherModel();
};

// After the server was away it may serve something else.
hooks.back = async () => {
  const before = JSON.stringify(state.model);
  await fetchModel();
  if (JSON.stringify(state.model) !== before) lookAgain();
};

startLanguage();
startTheme();
startAddress(VIEWS.map((view) => view.name));
find("language").addEventListener("click", switchLanguage);
subscribe(showModel);
startViews();
new Glass(find("glass-a"), "a");
startBars();
startIntake();
startPad();
startTour();
startKeeping();
startConnection();
tellToken(find("live"));
await fetchModel();
// A network of one channel has most likely learnt ink on paper.
if (state.model.channels === 1 && !state.images.a) change({ drawing: true });

async function fetchModel() {
  const model = await askJson("v1/model");
  change({ model });
  intoRange();
}

// The server swapped its model: what was seen came from the old one and is asked for again.
let swapping = false;
async function anotherModel() {
  if (swapping) return;
  swapping = true;
  try {
    await fetchModel();
    lookAgain();
  } finally {
    swapping = false;
  }
}

function lookAgain() {
  for (const side of ["a", "b"]) {
    const image = state.images[side];
    if (image) look(side, image.blob, image.name, image.note);
  }
}

function showModel() {
  const { model } = state;
  if (!model) return;
  document.body.classList.add("ready");
  document.title = `${model.name} · vitrail`;
  find("model-name").textContent = model.name;
  // A network without a name of its own is described, layers and all.
  const isDescribed = model.network.includes("layers");
  const patch = model.patch_size?.join(" × ");
  const network = isDescribed ? say("network", { layers: model.depth, width: model.width, patch, convolutions: model.stem?.convolutions }) : model.network;
  const facts = [network, model.parameters && say("parameters", { n: number(model.parameters) }), model.depth && !isDescribed && say("factsShape", { layers: model.depth, heads: model.num_heads }), say("factsClasses", { n: number(model.num_classes) })];
  find("model-facts").replaceChildren(facts.filter(Boolean).join(" · "), make("span", { class: "backend", textContent: ` · ${model.backend}` }));
}
