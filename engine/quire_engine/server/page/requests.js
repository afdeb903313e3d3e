/** The table of requests: those that run, then those that wait. */

import { count, make, seconds, setText, shortName } from "./format.js";
import { FIRST_REQUEST, makeSwatch, paintSwatch } from "./palette.js";

export class RequestTable {
  /** @param onPick called with a request's number when it is chosen, or let go of with null */
  constructor({ body, empty, summary, onPick }) {
    this.body = body;
    this.empty = empty;
    this.summary = summary;
    this.onPick = onPick;
    this.rows = new Map();
    this.colors = null;
    this.picked = null;
    this.mine = new Set();
    body.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.pick(null);
    });
  }

  use(colors) {
    this.colors = colors;
    for (const row of this.rows.values()) paintSwatch(row.swatch, colors);
  }

  /** Remembers the id of a request of this page's own. */
  own(id) {
    this.mine.add(id);
  }

  clear() {
    this.rows.clear();
    this.body.replaceChildren();
    this.pick(null);
  }

  show({ requests, num_running: numRunning, num_waiting: numWaiting }) {
    const gone = new Set(this.rows.keys());
    requests.forEach((request, index) => {
      gone.delete(request.number);
      const row = this.rows.get(request.number) ?? this.addRow(request);
      if (this.body.children[index] !== row.element) {
        this.body.insertBefore(row.element, this.body.children[index] ?? null);
      }
      this.fill(row, request);
    });
    for (const number of gone) this.removeRow(number);
    this.empty.hidden = requests.length > 0;
    const hidden = numRunning + numWaiting - requests.length;
    const more = hidden > 0 ? `, ${count(hidden)} not listed` : "";
    setText(this.summary, `${count(numRunning)} running, ${count(numWaiting)} waiting${more}`);
  }

  pick(number) {
    this.picked = number === this.picked ? null : number;
    for (const [each, row] of this.rows) {
      row.button.setAttribute("aria-pressed", String(each === this.picked));
    }
    this.onPick(this.picked);
  }

  addRow(request) {
    const row = makeRow(request);
    row.button.addEventListener("click", () => this.pick(request.number));
    if (this.colors !== null) paintSwatch(row.swatch, this.colors);
    this.rows.set(request.number, row);
    return row;
  }

  removeRow(number) {
    this.rows.get(number).element.remove();
    this.rows.delete(number);
    if (number === this.picked) this.pick(null);
  }

  fill(row, request) {
    const isWaiting = request.num_blocks === 0;
    row.element.classList.toggle("is-waiting", isWaiting);
    row.mine.hidden = !this.mine.has(request.id);
    row.swatch.style.visibility = isWaiting ? "hidden" : "visible";
    setText(row.phase, request.phase);
    const total = request.max_tokens;
    const prompt = Math.min(request.num_computed_tokens, request.num_prompt_tokens);
    const output = request.num_tokens - request.num_prompt_tokens;
    row.promptBar.style.width = `${(100 * prompt) / total}%`;
    row.outputBar.style.width = `${(100 * output) / total}%`;
    setText(row.tokens, count(request.num_tokens));
    setText(row.limit, ` / ${count(total)}`);
    setText(row.blocks, count(request.num_blocks));
    setText(row.waited, seconds(request.queue_seconds));
  }
}

function makeBackgroundTag() {
  const tag = make("span", "tag");
  const short = make("span", "short", "bg");
  short.setAttribute("aria-hidden", "true");
  tag.append(make("span", "long", "background"), short);
  return tag;
}

function makeRow(request) {
  const row = {
    element: make("tr"),
    button: make("button", "request-name"),
    swatch: makeSwatch(FIRST_REQUEST, request.number),
    mine: make("span", "tag is-mine", "you"),
    phase: make("td"),
    promptBar: make("div", "tokens-prompt"),
    outputBar: make("div", "tokens-output"),
    tokens: make("span"),
    limit: make("small"),
    blocks: make("td", "number"),
    waited: make("td", "number"),
  };
  row.button.type = "button";
  row.button.setAttribute("aria-pressed", "false");
  row.button.title = request.id;
  const name = make("code", "", shortName(request.id));
  row.button.append(row.swatch, name, row.mine);
  if (request.priority === "background") row.button.append(makeBackgroundTag());
  const nameCell = make("td");
  nameCell.append(row.button);
  const bar = make("div", "tokens-bar");
  bar.setAttribute("aria-hidden", "true");
  bar.append(row.promptBar, row.outputBar);
  const counts = make("span", "tokens-count");
  counts.append(row.tokens, row.limit);
  const tokens = make("div", "tokens");
  tokens.append(bar, counts);
  const tokensCell = make("td", "wide");
  tokensCell.append(tokens);
  row.element.append(nameCell, row.phase, tokensCell, row.blocks, row.waited);
  return row;
}
