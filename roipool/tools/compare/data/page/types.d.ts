// What the page's scripts share: the data that Python embeds (roipool/tools/compare/page.py), and the
// state. Only read by TypeScript's checker, and in no page.

type Pair = [number, number];
// [x1, y1, x2, y2], or turned: [cx, cy, width, height, angle]; in pixels and radians.
type Box = number[];
type Form = "corners" | "cells" | "ends" | "centres" | "region";

// `LiveSystem` of roipool/tools/compare/live.py.
interface System {
  name: string;
  family: string;
  listed: boolean;
  definition: string;
  maximum: boolean;
  aligned: boolean;
  angle_scale: number;
  empty: number;
  lowest: number | null;
  outside_is_zero: boolean;
  nan_restarts: boolean;
  scaled: boolean;
  sampled: boolean;
  boxes: Form;
  call: string;
}

// Where a group differs from the reference on a box, and for which reasons.
interface Why {
  where: Pair | null;
  reasons: [string, number | null][];
  remark: string;
}

interface Group {
  members: string[];
  reference: boolean;
  system: string | null;
  values?: string[];
  reasons?: Why[];
  choice?: number; // the page adds it
}

interface Data {
  title: string;
  about: string;
  note: string;
  size: Pair;
  map: Pair;
  values: string | null; // "picture", or the map in base64; null where only stored values are shown
  coloured: boolean;
  picture: string;
  range: Pair;
  colours: number[][];
  heat: number[][];
  tolerance: Pair;
  scale: number;
  bins: Pair;
  sampling: number;
  bin?: Pair;
  boxes: { number: number; numbers: Box }[];
  groups: Group[];
  systems: System[];
  wasm: string;
}

// What can be the first or the second of the two that are compared.
interface Choice {
  name: string;
  system: System | null;
  values?: string[];
}

interface Options {
  bins: Pair;
  scale: number;
  sampling: number;
}

interface State extends Options {
  boxes: Box[];
  box: number;
  a: number;
  b: number;
  bin: Pair | null;
}

interface MapSize {
  channels: number;
  rows: number;
  columns: number;
}

interface Planned {
  system: System;
  bins: Pair;
  samples: boolean;
  pointwise: boolean;
}

interface Difference {
  each: Float32Array;
  most: number;
  where: number;
}

interface View {
  scale: number;
  x(x: number): number;
  y(y: number): number;
  back(px: number, py: number): Pair;
}

interface Samples {
  count: number;
  kind: "points" | "cells" | "grid";
  down?: number[][];
  across?: number[][];
  of(row: number, column: number): Pair[];
}

// What a pointer holds.
interface Held {
  at: Pair;
  kind: "move" | "turn" | "resize";
  box: Box;
  handle?: Pair;
  number?: number;
  smallest?: number;
}

type Weights = Map<number, number>;
// Sets the colour of a bin's pixel, from `at` on.
type Paint = (bin: number, into: Uint8ClampedArray, at: number) => void;
