/** Follows /state/live: connects, connects again when it is lost, rests while the tab is hidden. */

import { KeyDemanded, call, readEvents } from "./api.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;
const SILENCE_MS = 5_000; // the engine says something every second

export class Connection {
  /**
   * @param onLive called with each live state
   * @param onLost called when there is none any more
   * @param askForKey resolves when a key was given, or rejects
   */
  constructor({ onLive, onLost, askForKey }) {
    this.onLive = onLive;
    this.onLost = onLost;
    this.askForKey = askForKey;
    this.waitMs = FIRST_WAIT_MS;
    this.abort = null;
    this.timer = null;
    this.watchdog = null;
  }

  start() {
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.rest();
      else this.wake();
    });
    window.addEventListener("online", () => this.wake());
    if (!document.hidden) this.wake();
  }

  /** Ends the stream: nobody looks, so the engine need not draw. */
  rest() {
    clearTimeout(this.timer);
    this.timer = null;
    this.abort?.abort();
    this.abort = null;
  }

  wake() {
    if (this.abort !== null || document.hidden) return;
    clearTimeout(this.timer);
    this.timer = null;
    this.follow();
  }

  async follow() {
    const abort = new AbortController();
    this.abort = abort;
    try {
      await this.read(abort);
    } catch (error) {
      if (error instanceof KeyDemanded) await this.askForKey().catch(() => {});
    }
    clearTimeout(this.watchdog);
    if (this.abort !== abort) return; // at rest, or another one follows
    this.abort = null;
    this.onLost();
    this.timer = setTimeout(() => this.wake(), this.waitMs * (0.8 + 0.4 * Math.random()));
    this.waitMs = Math.min(2 * this.waitMs, LONGEST_WAIT_MS);
  }

  async read(abort) {
    this.expectNews(abort);
    const response = await call("state/live", { signal: abort.signal });
    if (!response.ok) throw new Error(`status ${response.status}`);
    for await (const { name, data } of readEvents(response)) {
      this.expectNews(abort);
      this.waitMs = FIRST_WAIT_MS;
      if (name === "live" && !abort.signal.aborted) this.onLive(JSON.parse(data));
    }
  }

  /** A connection that is silent for long is dead, whatever the network says. */
  expectNews(abort) {
    clearTimeout(this.watchdog);
    this.watchdog = setTimeout(() => abort.abort(), SILENCE_MS);
  }
}
