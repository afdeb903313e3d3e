/** The chat: a conversation with the engine through its own API. */

import { KeyDemanded } from "./api.js";
import { streamAnswer } from "./completion.js";
import { count, make, rate, seconds, setText } from "./format.js";

const NEAR_THE_END = 40; // pixels: whoever reads further up is not scrolled away

export class Chat {
  /** @param onId called with the id of each answer as it begins */
  constructor({ elements, askForKey, onId }) {
    this.elements = elements;
    this.askForKey = askForKey;
    this.onId = onId;
    this.model = null;
    this.messages = [];
    this.abort = null;
    const { form, input, stop, clear } = elements;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.abort?.abort();
    });
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    });
    stop.addEventListener("click", () => this.abort?.abort());
    clear.addEventListener("click", () => this.clear());
    this.refresh();
  }

  /** @param model the name to ask for; null while the engine takes no requests */
  use(model) {
    this.model = model;
    this.refresh();
  }

  clear() {
    this.messages = [];
    for (const message of this.elements.log.querySelectorAll(".message")) message.remove();
    this.refresh();
    this.elements.input.focus();
  }

  async send() {
    const { input } = this.elements;
    const text = input.value.trim();
    if (text === "" || this.abort !== null || this.model === null) return;
    input.value = "";
    this.addMessage("user", "You").text.textContent = text;
    this.messages.push({ role: "user", content: text });
    const shown = this.addMessage("assistant", this.model);
    const answer = await this.answer(shown);
    if (answer !== "") this.messages.push({ role: "assistant", content: answer });
    else this.messages.pop();
    setText(this.elements.note, answer === "" ? "There is no answer." : `Answer: ${answer}`);
    this.refresh();
  }

  /** Streams the answer to the conversation so far into a message; returns its text. */
  async answer(shown) {
    const abort = new AbortController();
    this.abort = abort;
    this.refresh();
    setText(this.elements.note, "Answering");
    setText(shown.facts, "waiting for the first token");
    shown.box.classList.add("is-running");
    let text = "";
    try {
      const summary = await this.stream(abort.signal, (piece) => {
        if (text === "") setText(shown.facts, "");
        text += piece;
        this.append(shown.text, piece);
      });
      setText(shown.facts, describe(summary));
    } catch (error) {
      setText(shown.facts, abort.signal.aborted ? "stopped" : "");
      if (!abort.signal.aborted) shown.box.append(make("p", "message-error", error.message));
    }
    shown.box.classList.remove("is-running");
    this.scroll();
    this.abort = null;
    return text;
  }

  async stream(signal, onText) {
    const { settings } = this.elements;
    const request = {
      body: {
        model: this.model,
        messages: this.messages,
        temperature: numberIn(settings.temperature, 0),
        top_p: numberIn(settings.topP, 1),
        max_tokens: numberIn(settings.maxTokens, 256),
      },
      priority: settings.priority.value,
      signal,
      onId: this.onId,
      onText,
    };
    try {
      return await streamAnswer(request);
    } catch (error) {
      if (!(error instanceof KeyDemanded)) throw error;
      await this.askForKey();
      return streamAnswer(request);
    }
  }

  addMessage(role, who) {
    const box = make("article", `message is-${role}`);
    const text = make("div", "message-text");
    const facts = make("p", "message-facts");
    box.append(make("h3", "", who), text, facts);
    this.elements.log.append(box);
    this.scroll(true);
    return { box, text, facts };
  }

  append(element, piece) {
    const isAtEnd = this.isAtEnd();
    element.append(piece); // a text node: what a model says is never HTML
    if (isAtEnd) this.scroll(true);
  }

  isAtEnd() {
    const { log } = this.elements;
    return log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_THE_END;
  }

  scroll(isSure = this.isAtEnd()) {
    const { log } = this.elements;
    if (isSure) log.scrollTop = log.scrollHeight;
  }

  refresh() {
    const { stop, send, clear, empty } = this.elements;
    const isBusy = this.abort !== null;
    stop.hidden = !isBusy;
    send.hidden = isBusy;
    send.disabled = this.model === null;
    clear.disabled = isBusy || this.messages.length === 0;
    empty.hidden = this.elements.log.querySelector(".message") !== null;
  }
}

function numberIn(input, fallback) {
  return input.value !== "" && input.validity.valid ? input.valueAsNumber : fallback;
}

function describe({ firstTokenSeconds, tokensPerSecond, usage, reason }) {
  const parts = [];
  if (firstTokenSeconds !== null) parts.push(`first token ${seconds(firstTokenSeconds)}`);
  if (tokensPerSecond !== null) parts.push(`${rate(tokensPerSecond)} tokens/s`);
  if (usage !== null) {
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    parts.push(`${count(usage.completion_tokens)} tokens`);
    parts.push(`${count(cached)} of ${count(usage.prompt_tokens)} prompt tokens cached`);
  }
  if (reason === "length") parts.push("cut at max tokens");
  return parts.join(" · ");
}
