/** Asks for an API key, once however many requests need one. */

import { useKey } from "./api.js";

export class KeyDialog {
  constructor({ dialog, form, input, cancel }) {
    this.dialog = dialog;
    this.input = input;
    this.asking = null;
    this.settle = null;
    form.addEventListener("submit", () => {
      useKey(input.value);
      this.finish(true);
    });
    cancel.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => this.finish(false));
  }

  /** Resolves when a key was given; rejects when the dialog was left without one. */
  ask() {
    this.asking ??= new Promise((resolve, reject) => {
      this.settle = { resolve, reject };
      this.input.value = "";
      this.dialog.showModal();
    });
    return this.asking;
  }

  finish(isGiven) {
    if (this.settle === null) return;
    if (isGiven) this.settle.resolve();
    else this.settle.reject(new Error("No API key was given."));
    this.asking = null;
    this.settle = null;
    this.input.value = "";
  }
}
