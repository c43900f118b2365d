// Asking the person for the token of the server; it is kept until the browser tab is closed.

import { find, make } from "./dom.js";
import { say } from "./words.js";

let waiting = null;

// Several requests may be refused at once: one question is enough for all of them.
export function askToken(wasWrong) {
  waiting ??= open(wasWrong).finally(() => (waiting = null));
  return waiting;
}

function open(wasWrong) {
  const dialog = find("token-dialog");
  const field = make("input", { type: "password", id: "token", autocomplete: "off", required: true });
  const form = make(
    "form",
    {
      onsubmit: (event) => {
        event.preventDefault();
        dialog.close("send");
      },
    },
    make("h2", { textContent: say("tokenTitle") }),
    make("p", { textContent: say(wasWrong ? "tokenWrong" : "tokenWanted") }),
    make("label", { for: "token", textContent: say("tokenField") }),
    field,
    make("button", { class: "main", textContent: say("tokenSend") }),
  );
  dialog.replaceChildren(form);
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "send" ? field.value : null), { once: true });
  });
}
