// A photo from the camera.

import { find, make } from "./dom.js";
import { say } from "./words.js";

export async function takePhoto() {
  const dialog = find("camera-dialog");
  const video = make("video", { autoplay: true, muted: true, playsInline: true });
  const message = make("p", { role: "status" });
  const shutter = make("button", { class: "main", type: "button", textContent: say("takePhoto"), disabled: true });
  const leave = make("button", { type: "button", textContent: say("close"), onclick: () => dialog.close() });
  dialog.replaceChildren(make("h2", { textContent: say("camera") }), video, message, make("div", { class: "row" }, shutter, leave));
  dialog.showModal();
  let stream = null;
  const photo = new Promise((resolve) => {
    shutter.addEventListener("click", async () => {
      const canvas = new OffscreenCanvas(video.videoWidth, video.videoHeight);
      canvas.getContext("2d").drawImage(video, 0, 0);
      const blob = await canvas.convertToBlob({ type: "image/jpeg", quality: 0.95 });
      resolve(new File([blob], say("photo"), { type: "image/jpeg" }));
      dialog.close();
    });
    dialog.addEventListener("close", () => resolve(null), { once: true });
  });
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    video.srcObject = stream;
    video.addEventListener("loadedmetadata", () => (shutter.disabled = false));
  } catch {
    message.textContent = say("noCamera");
  }
  const taken = await photo;
  stream?.getTracks().forEach((track) => track.stop());
  return taken;
}
