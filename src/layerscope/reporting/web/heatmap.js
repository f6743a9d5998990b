// Heat maps: layers against layers.

function part(side, model) { // the places of one model, or of all
  return range(side.labels.length).filter((k) => model < 0 || side.of[k] === model);
}

function heatmap(card, figure, plot, width) {
  const [rowModel, columnModel] = card.pair;
  const rows = part(figure.rows, rowModel), columns = part(figure.columns, columnModel);
  const count = figure.columns.labels.length;
  const index = (i, j) => rows[i] * count + columns[j];
  const models = [new Set(rows.map((k) => figure.rows.of[k])).size, new Set(columns.map((k) => figure.columns.of[k])).size];
  const left = models[0] > 1 ? 58 : 52, top = 8, bottom = models[1] > 1 ? 56 : 44, bar = 46;
  const cell = clamp(Math.min((width - left - 12) / columns.length, 560 / rows.length), 4, 44);
  const w = cell * columns.length, h = cell * rows.length;
  const full = Math.max(left + w + 12, Math.min(width, 230));
  const svg = make("svg", { class: "map", width: full, height: top + h + bottom + bar }, plot);
  const values = range(rows.length).map((i) => range(columns.length).map((j) => figure.values[index(i, j)]));
  let [low, high] = card.stretch ? reach(values.flat(), 0) : figure.scale;
  if (!(high > low)) high = low + 1;
  const y = (i) => top + h - (i + 1) * cell; // layer 0 at the bottom
  const defs = make("defs", {}, svg), hatch = `hatch-${++serial}`, ramp = `ramp-${serial}`;
  const pattern = make("pattern", { id: hatch, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, defs);
  make("rect", { width: 6, height: 6, fill: "var(--faint)" }, pattern);
  make("rect", { width: 2, height: 6, fill: "var(--soft)" }, pattern);
  const paths = new Map();
  range(rows.length).forEach((i) => range(columns.length).forEach((j) => {
    const v = values[i][j];
    let fill = "";
    if (known(v)) fill = colour(Math.round(((v - low) / (high - low)) * LEVELS) / LEVELS);
    else if (index(i, j) in figure.why) fill = `url(#${hatch})`;
    else return; // no such cell
    const d = `M${(left + j * cell).toFixed(2)} ${y(i).toFixed(2)}h${cell.toFixed(2)}v${cell.toFixed(2)}h${-cell.toFixed(2)}z`;
    paths.set(fill, (paths.get(fill) || "") + d);
  }));
  for (const [fill, d] of paths) make("path", { d, fill, class: fill.startsWith("url") ? "undefined" : "cells", "shape-rendering": "crispEdges" }, svg);
  if (cell >= 30 && columns.length <= 16) {
    range(rows.length).forEach((i) => range(columns.length).forEach((j) => {
      const v = values[i][j];
      if (!known(v)) return;
      const ink = inkOn(colour(Math.round(((v - low) / (high - low)) * LEVELS) / LEVELS));
      make("text", { x: left + (j + 0.5) * cell, y: y(i) + cell / 2 + 4, "text-anchor": "middle", "font-size": 11, class: "digits", style: `fill:${ink};pointer-events:none` }, svg, Math.abs(v) >= 99.5 ? v.toFixed(0) : v.toFixed(2).replace(/^(-?)0\./, "$1."));
    }));
  }
  const marked = new Set(figure.marked || []);
  range(rows.length).forEach((i) => range(columns.length).forEach((j) => {
    if (!marked.has(index(i, j)) || !known(values[i][j])) return;
    const gap = clamp(cell / 8, 0.5, 3), ink = inkOn(colour(Math.round(((values[i][j] - low) / (high - low)) * LEVELS) / LEVELS));
    make("rect", { x: left + j * cell + gap, y: y(i) + gap, width: cell - 2 * gap, height: cell - 2 * gap, rx: 3, fill: "none", class: "ring", style: `stroke:${ink};stroke-width:1.5;pointer-events:none` }, svg);
  }));
  sideTicks(svg, figure.rows, rows, cell, { left, top, w, h, upright: true, room: h, several: models[0] > 1 });
  sideTicks(svg, figure.columns, columns, cell, { left, top, w, h, upright: false, room: w, several: models[1] > 1 });
  for (const cut of figure.cuts) {
    if (rows.length !== figure.rows.labels.length) break;
    const line = { stroke: "#fff", "stroke-width": 2, "stroke-dasharray": "5 3" };
    make("line", { x1: left + cut * cell, x2: left + cut * cell, y1: top, y2: top + h, ...line }, svg);
    make("line", { y1: top + h - cut * cell, y2: top + h - cut * cell, x1: left, x2: left + w, ...line }, svg);
  }
  const gradient = make("linearGradient", { id: ramp }, defs);
  STOPS.forEach((stop, k) => make("stop", { offset: k / (STOPS.length - 1), "stop-color": stop }, gradient));
  const long = clamp(w, 120, 220), base = top + h + bottom;
  make("rect", { x: left, y: base + 4, width: long, height: 10, fill: `url(#${ramp})` }, svg);
  make("text", { x: left, y: base + 28, "font-size": 12, class: "soft" }, svg, spell(low));
  make("text", { x: left + long, y: base + 28, "font-size": 12, class: "soft", "text-anchor": "end" }, svg, spell(high));
  label(svg, figure.value_name, { x: left + long / 2, y: base + 28, class: "soft", "text-anchor": "middle" }, long - 70);
  if (paths.has(`url(#${hatch})`)) {
    const at = left + long + 14 + 90 <= full ? [left + long + 14, base + 4] : [left, base + 34];
    make("rect", { x: at[0], y: at[1], width: 14, height: 10, fill: `url(#${hatch})` }, svg);
    make("text", { x: at[0] + 19, y: at[1] + 10, "font-size": 12, class: "soft" }, svg, "undefined");
  }
  const name = (side, k) => {
    const model = side.models[side.of[k]];
    return model ? `${model} \u00b7 layer ${side.labels[k]}` : `${side.name} ${side.labels[k]}`;
  };
  pointed(svg, card.name(), {
    at: (px, py) => {
      const j = Math.floor((px - left) / cell), i = Math.floor((top + h - py) / cell);
      return i >= 0 && j >= 0 && i < rows.length && j < columns.length ? i * columns.length + j : -1;
    },
    start: 0,
    moved: (place, key) => {
      let i = Math.floor(place / columns.length), j = place % columns.length;
      if (key === "ArrowLeft") j--; else if (key === "ArrowRight") j++;
      else if (key === "ArrowUp") i++; else if (key === "ArrowDown") i--;
      else if (key === "Home") j = 0; else j = columns.length - 1;
      return clamp(i, 0, rows.length - 1) * columns.length + clamp(j, 0, columns.length - 1);
    },
    lines: (place) => {
      const i = Math.floor(place / columns.length), j = place % columns.length, k = index(i, j);
      const where = [name(figure.rows, rows[i]), name(figure.columns, columns[j])];
      if (!known(figure.values[k])) {
        const reason = k in figure.why ? figure.reasons[figure.why[k]] : "";
        return [reason ? `${figure.value_name}: undefined` : "no such cell", ...where, ...(reason ? [reason] : [])];
      }
      const found = [`${figure.value_name} ${spell(figure.values[k])} ${figure.low ? interval(figure.low[k], figure.high[k]) : ""}`.trim(), ...where];
      if (figure.low && !known(figure.low[k]) && k in figure.why) found.push(figure.reasons[figure.why[k]]);
      if (figure.bias && known(figure.bias[k])) found.push(`bias ${spell(figure.bias[k])}`);
      if (figure.baseline && known(figure.baseline[k])) {
        const p = figure.p_value && known(figure.p_value[k]) ? ` (p = ${spell(figure.p_value[k])})` : "";
        found.push(`shuffled texts give ${spell(figure.baseline[k])}${p}`);
      }
      if (figure.calibrated && known(figure.calibrated[k])) found.push(`above chance ${spell(figure.calibrated[k])}`);
      if (marked.has(k) && figure.marked_name) found.push(figure.marked_name);
      if (figure.n !== null) found.push(`n = ${spell(figure.n)}`);
      return found;
    },
    mark: (place) => {
      const at = { x: left + (place % columns.length) * cell, y: y(Math.floor(place / columns.length)), width: cell, height: cell };
      const group = make("g", { class: "tip-mark" }, svg);
      make("rect", { ...at, stroke: "#000", "stroke-width": 4 }, group);
      make("rect", { ...at, stroke: "#fff", "stroke-width": 2 }, group);
      return group;
    },
  });
}

function sideTicks(svg, side, places, cell, { left, top, w, h, upright, room, several }) {
  const step = Math.ceil((upright ? 15 : 22) / cell);
  let start = 0;
  for (let k = 1; k <= places.length; k++) { // one model after another
    if (k < places.length && side.of[places[k]] === side.of[places[start]]) continue;
    for (let t = start; t < k; t += step) {
      const centre = (t + 0.5) * cell, text = side.labels[places[t]];
      if (upright) label(svg, text, { x: left - 6, y: top + h - centre + 4, "text-anchor": "end", class: "soft" }, 34);
      else label(svg, text, { x: left + centre, y: top + h + 16, "text-anchor": "middle", class: "soft" }, Math.max(step * cell, 20));
    }
    const model = side.models[side.of[places[start]]], middle = ((start + k) / 2) * cell;
    if (several) {
      const length = (k - start) * cell;
      if (upright) label(svg, model, { transform: `translate(14 ${top + h - middle}) rotate(-90)`, "text-anchor": "middle" }, length - 6);
      else label(svg, model, { x: left + middle, y: top + h + 36, "text-anchor": "middle" }, length - 6);
      if (start > 0) {
        const line = { stroke: "var(--paper)", "stroke-width": 2.5 };
        if (upright) make("line", { x1: left, x2: left + w, y1: top + h - start * cell, y2: top + h - start * cell, ...line }, svg);
        else make("line", { y1: top, y2: top + h, x1: left + start * cell, x2: left + start * cell, ...line }, svg);
      }
    }
    start = k;
  }
  if (several) return;
  const model = side.models[side.of[places[0]]], title = model ? `layer of ${model}` : side.name;
  if (upright) label(svg, title, { transform: `translate(14 ${top + h / 2}) rotate(-90)`, "text-anchor": "middle" }, Math.max(room, 100));
  else label(svg, title, { x: left + w / 2, y: top + h + 36, "text-anchor": "middle" }, Math.max(room, 150));
}
