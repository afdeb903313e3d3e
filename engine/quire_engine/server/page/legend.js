/** What the grid's cells mean, with the exact counts of all blocks. */

import { count, make, setText } from "./format.js";
import { CACHED, FIRST_REQUEST, FREE, PROMISED_FREE, SHARED, makeSwatch, paintSwatch }
  from "./palette.js";

const ENTRIES = [
  { key: "held", label: "held by requests", codes: [[FIRST_REQUEST, 0],
    [FIRST_REQUEST, 9], [FIRST_REQUEST, 18]] },
  { key: "shared", label: "of them shared", codes: [[SHARED, 0]] },
  { key: "free", label: "free", codes: [[FREE, 0]] },
  { key: "cached", label: "of them cached", codes: [[CACHED, 0]] },
  { key: "promised", label: "promised next", codes: [[PROMISED_FREE, 0]] },
];

export class Legend {
  constructor(list) {
    this.figures = {};
    this.swatches = [];
    for (const { key, label, codes } of ENTRIES) {
      const item = make("li");
      const swatches = codes.map(([code, number]) => makeSwatch(code, number));
      this.figures[key] = make("b", "", "–");
      this.figures[key].dataset.count = key;
      item.append(...swatches, this.figures[key], make("span", "", label));
      this.swatches.push(...swatches);
      list.append(item);
    }
  }

  use(colors) {
    for (const swatch of this.swatches) paintSwatch(swatch, colors);
  }

  /** @param numShared null where the core draws no map */
  show(blocks, numShared) {
    const { held, free, cached, reserved } = blocks;
    const counts = { held, shared: numShared, free, cached, promised: reserved - held };
    for (const [key, value] of Object.entries(counts)) {
      setText(this.figures[key], value === null ? "–" : count(value));
    }
  }
}
