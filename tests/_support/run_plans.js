"use strict";
// Answers the questions in a file with the page's own script: node run_plans.js DATA QUESTIONS ANSWERS
const fs = require("fs");
const path = require("path");
const vm = require("vm");
const { createHash } = require("crypto");

const [data, questions, answers] = process.argv.slice(2);
const script = fs.readFileSync(path.join(data, "page", "plans.js"), "utf8");
const Plans = vm.runInThisContext(`${script}\nPlans`);
const floats = (text) => new Float32Array(Uint8Array.from(Buffer.from(text, "base64")).buffer);
const plain = (values) => values.map((x) => x + 0); // one zero: -0 + 0 is 0

// The weights of all cells in all bins: a row of cells for each bin.
function weightsOf(plans, [rows, columns]) {
  const cells = plans.map.rows * plans.map.columns;
  const found = new Float32Array(rows * columns * cells);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      for (const [cell, weight] of plans.weights(i, j)) found[(i * columns + j) * cells + cell] = weight;
    }
  }
  return found;
}

async function main() {
  const plans = await Plans.of(fs.readFileSync(path.join(data, "playground.wasm")));
  const found = [];
  for (const { map, asked } of JSON.parse(fs.readFileSync(questions))) {
    plans.setMap(map.channels, map.rows, map.columns, floats(map.values));
    for (const { system, box, options, what } of asked) {
      const numbers = Array.from(floats(box));
      if (what === "box") {
        found.push(Buffer.from(Float32Array.from(plans.boxFor(system, numbers, options)).buffer).toString("base64"));
        continue;
      }
      plans.plan(system, numbers, options);
      const values = what === "weights" ? weightsOf(plans, options.bins) : plans.pool();
      const bytes = Buffer.from(plain(values).buffer);
      found.push(what === "values" ? bytes.toString("base64") : createHash("sha256").update(bytes).digest("hex"));
    }
  }
  fs.writeFileSync(answers, JSON.stringify(found));
}

main();
