// How an image gets in: chosen, dropped anywhere, pasted, or taken with the camera.

import { takePhoto } from "./camera.js";
import { find } from "./dom.js";
import { look } from "./looked.js";
import { fitting } from "./shrink.js";
import { change, state } from "./state.js";
import { number, say } from "./words.js";

let chosenFor = "a";

export function startIntake() {
  const file = find("file");
  find("choose").addEventListener("click", () => chooseFor("a"));
  file.addEventListener("change", () => {
    if (file.files[0]) take(file.files[0], chosenFor);
    file.value = "";
    chosenFor = "a";
  });
  find("camera").hidden = !navigator.mediaDevices?.getUserMedia;
  find("camera").addEventListener("click", async () => {
    const photo = await takePhoto();
    if (photo) take(photo, "a");
  });
  find("paste").hidden = !navigator.clipboard?.read;
  find("paste").addEventListener("click", pasteFromClipboard);
  document.addEventListener("paste", (event) => {
    const pasted = [...event.clipboardData.files].find((one) => one.type.startsWith("image/"));
    if (pasted) take(pasted, "a");
  });
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    document.body.classList.add("dragging");
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("dragging");
  });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dragging");
    const dropped = event.dataTransfer.files[0];
    if (dropped) take(dropped, event.target.closest?.("[data-side]")?.dataset.side ?? "a");
  });
}

export function chooseFor(side) {
  chosenFor = side;
  find("file").click();
}

export async function take(file, side) {
  if (!state.model) return;
  if (side === "a") change({ drawing: false, covered: [] });
  const { blob, from, to } = await fitting(file, state.model.limits);
  const times = (pair) => pair.map(number).join(" × ");
  const note = from ? say("shrunk", { from: times(from), to: times(to) }) : null;
  await look(side, blob, file.name ?? say("photo"), note);
}

async function pasteFromClipboard() {
  try {
    for (const item of await navigator.clipboard.read()) {
      const type = item.types.find((one) => one.startsWith("image/"));
      if (type) {
        take(new File([await item.getType(type)], say("pasted"), { type }), "a");
        return;
      }
    }
    find("live").textContent = say("nothingToPaste");
  } catch {
    find("live").textContent = say("nothingToPaste");
  }
}
