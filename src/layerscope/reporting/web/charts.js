// Axes, marks, lines and legends; curves and points over them.

function axes(svg, { left, top, w, h }, x, y, figure) {
  for (const t of y.ticks) {
    make("line", { x1: left, x2: left + w, y1: y.at(t), y2: y.at(t), class: "grid" }, svg);
    make("text", { x: left - 7, y: y.at(t) + 4, "text-anchor": "end", "font-size": 12, class: "soft" }, svg, figure.log && t >= 1e4 ? powerOfTen(t) : spell(t));
  }
  for (const t of x.ticks) {
    make("line", { x1: x.at(t), x2: x.at(t), y1: top + h, y2: top + h + 4, class: "axis" }, svg);
    make("text", { x: x.at(t), y: top + h + 18, "text-anchor": "middle", "font-size": 12, class: "soft" }, svg, spell(t));
  }
  make("line", { x1: left, x2: left + w, y1: top + h, y2: top + h, class: "axis" }, svg);
  label(svg, figure.x_name, { x: left + w / 2, y: top + h + 38, "text-anchor": "middle" }, w);
  label(svg, figure.y_name, { transform: `translate(14 ${top + h / 2}) rotate(-90)`, "text-anchor": "middle" }, h);
}

// Names go where they cover no point and no other name; `taken` holds boxes as [left, top, right, bottom].

const WIDE = 6.6, HIGH = 14; // of a letter, in pixels
const shared = (a, b) => Math.max(0, Math.min(a[2], b[2]) - Math.max(a[0], b[0])) * Math.max(0, Math.min(a[3], b[3]) - Math.max(a[1], b[1]));
const dot = (x, y, r) => [x - r, y - r, x + r, y + r];

function free(places, taken, { left, top, w, h }) {
  const inside = [left, top, left + w, top + h];
  const fault = (box) => taken.reduce((sum, other) => sum + shared(box, other), 0) + 2 * ((box[2] - box[0]) * (box[3] - box[1]) - shared(box, inside));
  let best = places[0], least = Infinity;
  for (const box of places) { const f = fault(box); if (f < least - 1e-9) { least = f; best = box; } }
  taken.push(best);
  return best;
}

function named(svg, text, box, more) {
  const node = make("text", { x: box[0], y: box[3] - 3, "font-size": 12, ...more }, svg, text);
  node.classList.add("name");
  return node;
}

function level(svg, frame, y, [name, value], taken) {
  if (!known(value)) return;
  const { left, w } = frame, at = y.at(value), text = shorten(`${name} ${spell(value)}`, w), wide = text.length * WIDE;
  make("line", { x1: left, x2: left + w, y1: at, y2: at, stroke: "var(--soft)", "stroke-dasharray": "5 4", "stroke-width": 1.5 }, svg);
  const starts = [left + w - wide - 4, left + 4, left + (w - wide) / 2, left + w * 0.25 - wide / 2, left + w * 0.75 - wide / 2];
  const places = [at - HIGH - 2, at + 2].flatMap((top) => starts.map((x) => [x, top, x + wide, top + HIGH]));
  named(svg, text, free(places, taken, frame), { class: "soft halo" });
}

function upright(svg, frame, x, [name, value], taken) {
  const { top, h, w } = frame, at = x.at(value), text = shorten(name, w / 3), wide = text.length * WIDE;
  make("line", { x1: at, x2: at, y1: top, y2: top + h, stroke: "var(--soft)", "stroke-dasharray": "2 3", "stroke-width": 1.5 }, svg);
  const places = [top + 2, top + h - HIGH - 2, top + h / 2].flatMap((y) => [at + 5, at - wide - 5].map((start) => [start, y, start + wide, y + HIGH]));
  named(svg, text, free(places, taken, frame), { class: "soft halo" });
}

function apart(centres, gap, low, high) { // places along a line, as near to their own as a gap between them allows
  const order = range(centres.length).sort((a, b) => centres[a] - centres[b]);
  const spread = order.map((k) => clamp(centres[k], low, high));
  for (let k = 1; k < spread.length; k++) spread[k] = Math.max(spread[k], spread[k - 1] + gap);
  let limit = Math.max(high, low + gap * (spread.length - 1));
  for (let k = spread.length - 1; k >= 0; k--) { spread[k] = Math.min(spread[k], limit); limit = spread[k] - gap; }
  const placed = [];
  order.forEach((k, i) => { placed[k] = spread[i]; });
  return placed;
}

function blob(parent, k, x, y, size, fill) {
  const shape = SHAPES[k % SHAPES.length], s = size;
  const style = { fill: fill || `var(--s${k % 8})`, stroke: "var(--paper)", "stroke-width": 1 };
  if (shape === "circle") return make("circle", { cx: x, cy: y, r: s, ...style }, parent);
  const d = {
    square: `M${x - s} ${y - s}h${2 * s}v${2 * s}h${-2 * s}z`,
    triangle: `M${x} ${y - s * 1.2}l${s * 1.15} ${s * 2.1}h${-s * 2.3}z`,
    diamond: `M${x} ${y - s * 1.35}l${s * 1.35} ${s * 1.35}l${-s * 1.35} ${s * 1.35}l${-s * 1.35} ${-s * 1.35}z`,
    cross: `M${x - s} ${y - s / 3}h${s * 0.67}v${-s * 0.67}h${s * 0.67}v${s * 0.67}h${s * 0.67}v${s * 0.67}h${-s * 0.67}v${s * 0.67}h${-s * 0.67}v${-s * 0.67}h${-s * 0.67}z`,
  }[shape];
  return make("path", { d, ...style }, parent);
}

const linear = (low, high, from, to) => (v) => from + ((v - low) / (high - low)) * (to - from);

function legend(card, names) {
  let box = card.controls.querySelector(".legend");
  if (box) box.remove();
  if (names.length < 2) return;
  box = tag("div", { class: "legend", role: "group", "aria-label": "Shown series" }, card.controls);
  names.forEach((name, k) => {
    const button = tag("button", { type: "button", "aria-pressed": String(!card.off.has(name)) }, box);
    const icon = make("svg", { "aria-hidden": "true" }, button);
    if (card.figure().kind === "curve") make("line", { x1: 0, x2: 22, y1: 5, y2: 5, stroke: `var(--s${k % 8})`, "stroke-width": 2, "stroke-dasharray": DASHES[Math.floor(k / 8) % 4] }, icon);
    blob(icon, k, 11, 5, 4);
    tag("span", {}, button, name);
    button.addEventListener("click", () => {
      if (card.off.has(name)) card.off.delete(name); else card.off.add(name);
      card.draw();
      const again = card.controls.querySelectorAll(".legend button")[k];
      if (again) again.focus();
    });
  });
}

function frameOf(plot, width, tall, right = 16) {
  const left = 62, top = 14, bottom = 48;
  const h = width < 460 ? tall * 0.8 : tall;
  const svg = make("svg", { width, height: top + h + bottom }, plot);
  return { svg, left, top, w: width - left - right, h };
}

const MOST_NAMED = 8; // lines with their names beside them; of more there is the legend alone

function powers(low, high) { // an axis of powers of ten: at most seven of them, with 2 and 5 between where they are few
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high)), step = Math.ceil((last - first) / 7), marked = [];
  for (let k = first; k <= last; k += step) for (const factor of last - first < 3 ? [1, 2, 5] : [1]) marked.push(factor * 10 ** k);
  return marked.filter((v) => v >= low && v <= high);
}

function heights(figure, values, top, h) {
  if (figure.log && values.some((v) => known(v) && v > 0)) {
    const [low, high] = reach(values.filter((v) => known(v) && v > 0).map(Math.log10), 0.07);
    const at = linear(low, high, top + h, top);
    return { at: (v) => at(Math.log10(v)), ticks: powers(10 ** low, 10 ** high), shows: (v) => known(v) && v > 0 };
  }
  const [low, high] = reach(values, 0.07);
  return { at: linear(low, high, top + h, top), ticks: ticks(low, high, 6), shows: known };
}

function curves(card, figure, plot, width) {
  const all = new Map();
  figure.data.series.forEach((name, k) => {
    if (!all.has(name)) all.set(name, []);
    const d = figure.data;
    all.get(name).push({ x: d.x[k], y: d.y[k], low: d.low[k], high: d.high[k], hollow: Boolean(d.hollow && d.hollow[k]) });
  });
  const names = [...all.keys()];
  legend(card, names);
  const shown = names.filter((name) => !card.off.has(name));
  const points = shown.flatMap((name) => all.get(name));
  const beside = names.length > 1 && names.length <= MOST_NAMED;
  const room = beside ? clamp(Math.max(...names.map((n) => n.length)) * WIDE + 12, 40, width * 0.3) : 16;
  const box = frameOf(plot, width, 300, room), { svg, left, top, w, h } = box;
  const xs = reach(figure.data.x, 0), whole = figure.data.x.every(Number.isInteger);
  const x = { at: linear(xs[0], xs[1] > xs[0] ? xs[1] : xs[0] + 1, left + 10, left + w - 10), ticks: ticks(xs[0], Math.max(xs[1], xs[0] + (whole ? 1 : 0.1)), Math.max(2, w / 45), whole).filter((t) => t <= xs[1]) };
  const y = heights(figure, [...points.flatMap((p) => [p.y, p.low, p.high]), ...figure.references.map((r) => r[1])], top, h);
  axes(svg, box, x, y, figure);
  const taken = points.filter((p) => y.shows(p.y)).map((p) => dot(x.at(p.x), y.at(p.y), 5));
  figure.marks.forEach((mark) => upright(svg, box, x, mark, taken));
  const ends = [];
  for (const name of shown) {
    const k = names.indexOf(name), own = all.get(name), stroke = `var(--s${k % 8})`;
    const banded = own.filter((p) => y.shows(p.low) && y.shows(p.high));
    if (banded.length > 1) {
      const edge = [...banded.map((p) => [p.x, p.high]), ...banded.reverse().map((p) => [p.x, p.low])];
      make("polygon", { points: edge.map(([a, b]) => `${x.at(a)},${y.at(b)}`).join(" "), fill: stroke, opacity: 0.18 }, svg);
    }
    let d = "", pen = "M";
    for (const p of own) {
      if (!y.shows(p.y)) { pen = "M"; continue; }
      d += `${pen}${x.at(p.x).toFixed(1)} ${y.at(p.y).toFixed(1)}`;
      pen = "L";
    }
    make("path", { d, fill: "none", stroke, "stroke-width": 2.2, "stroke-dasharray": DASHES[Math.floor(k / 8) % 4], class: "line" }, svg);
    const drawn = own.filter((p) => y.shows(p.y));
    for (const p of drawn) {
      const shape = blob(svg, k, x.at(p.x), y.at(p.y), own.length > 40 ? 2.4 : 4, p.hollow ? "var(--paper)" : undefined);
      if (p.hollow) { shape.setAttribute("stroke", stroke); shape.setAttribute("stroke-width", 1.8); shape.setAttribute("class", "hollow"); }
    }
    if (drawn.length) ends.push({ name, stroke, y: y.at(drawn[drawn.length - 1].y) });
  }
  if (beside) {
    const at = apart(ends.map((end) => end.y), HIGH, top + 6, top + h - 4);
    ends.forEach((end, i) => { label(svg, end.name, { x: left + w + 4, y: at[i] + 4, fill: end.stroke, style: `fill: ${end.stroke}`, class: "name" }, room - 6); });
  }
  figure.references.forEach((reference) => level(svg, box, y, reference, taken)); // its name stands above the curves
  const places = [...new Set(figure.data.x)].sort((a, b) => a - b);
  pointed(svg, card.name(), {
    at: (px) => places.reduce((best, v, k) => (Math.abs(x.at(v) - px) < Math.abs(x.at(places[best]) - px) ? k : best), 0),
    start: 0,
    moved: stepping(places.length),
    lines: (place) => {
      const lines = [`${figure.x_name} ${spell(places[place])}`];
      for (const name of shown) {
        for (const p of all.get(name)) if (p.x === places[place]) lines.push(`${name}: ${spell(p.y)} ${interval(p.low, p.high)}`.trim() + (p.hollow ? `; ${figure.hollow}` : ""));
      }
      if (figure.n !== null) lines.push(`n = ${spell(figure.n)}`);
      return lines;
    },
    mark: (place) => make("line", { x1: x.at(places[place]), x2: x.at(places[place]), y1: top, y2: top + h, stroke: "var(--accent)", "stroke-width": 1.5, class: "tip-mark" }, svg),
  });
}

function scatter(card, figure, plot, width) {
  const d = figure.data, all = range(d.x.length).map((k) => ({ x: d.x[k], y: d.y[k], label: d.label[k], series: d.series[k], low: d.low[k], high: d.high[k] }));
  const names = [...new Set(d.series)];
  legend(card, names);
  const shown = all.filter((p) => known(p.x) && known(p.y) && (!figure.log || p.y > 0) && !card.off.has(p.series)).sort((a, b) => a.x - b.x || a.y - b.y);
  const box = frameOf(plot, width, 340), { svg, left, top, w, h } = box;
  const few = shown.length <= 40, stressed = (p) => figure.stressed.includes(p.series);
  const whiskered = (p) => (few || stressed(p)) && known(p.low) && known(p.high) && (!figure.log || p.low > 0);
  const xs = reach(shown.map((p) => p.x), 0.06);
  const x = { at: linear(xs[0], xs[1], left, left + w), ticks: ticks(xs[0], xs[1], Math.max(2, w / 60), d.x.every(Number.isInteger)) };
  const y = heights(figure, [...shown.flatMap((p) => (whiskered(p) ? [p.y, p.low, p.high] : [p.y])), ...figure.references.map((r) => r[1])], top, h);
  axes(svg, box, x, y, figure);
  const taken = shown.map((p) => dot(x.at(p.x), y.at(p.y), stressed(p) ? 9 : 6));
  for (const name of figure.joined) {
    const own = shown.filter((p) => p.series === name);
    if (own.some((p) => p.series === name)) make("path", { d: "M" + own.map((p) => `${x.at(p.x).toFixed(1)} ${y.at(p.y).toFixed(1)}`).join("L"), fill: "none", stroke: `var(--s${names.indexOf(name) % 8})`, "stroke-width": 1.8 }, svg);
  }
  const whisker = (p, parent) => make("path", { d: `M${x.at(p.x)} ${y.at(p.low)}V${y.at(p.high)}`, stroke: `var(--s${names.indexOf(p.series) % 8})`, "stroke-width": 1.8, opacity: stressed(p) ? 1 : 0.4 }, parent);
  for (const p of [...shown].sort((a, b) => stressed(a) - stressed(b))) {
    if (whiskered(p)) whisker(p, svg);
    blob(svg, names.indexOf(p.series), x.at(p.x), y.at(p.y), stressed(p) ? 7.5 : 4.5).setAttribute("class", "point");
  }
  for (const p of shown.filter(stressed)) {
    const px = x.at(p.x), py = y.at(p.y), text = shorten(p.label, w / 2), wide = text.length * WIDE, places = [];
    for (const d of [12, 22, 36, 54]) for (const [start, over] of [[px + d, py - d / 2 - HIGH], [px - d - wide, py - d / 2 - HIGH], [px + d, py + d / 2], [px - d - wide, py + d / 2], [px - wide / 2, py - d - HIGH], [px - wide / 2, py + d]]) places.push([start, over, start + wide, over + HIGH]);
    named(svg, text, free(places, taken, box), { "font-weight": 600, class: "halo" });
  }
  figure.references.forEach((reference) => level(svg, box, y, reference, taken));
  pointed(svg, card.name(), {
    at: (px, py) => {
      let best = -1, near = 30 * 30;
      shown.forEach((p, k) => { const far = (x.at(p.x) - px) ** 2 + (y.at(p.y) - py) ** 2; if (far < near) { near = far; best = k; } });
      return best;
    },
    start: 0,
    moved: stepping(shown.length),
    lines: (k) => {
      const p = shown[k], lines = [p.label, `${figure.y_name}: ${spell(p.y)} ${interval(p.low, p.high)}`.trim(), `${figure.x_name}: ${spell(p.x)}`];
      if (names.length > 1) lines.push(p.series);
      if (figure.n !== null) lines.push(`n = ${spell(figure.n)}`);
      return lines;
    },
    mark: (k) => {
      const group = make("g", { class: "tip-mark" }, svg), p = shown[k];
      if (!whiskered(p) && known(p.low) && known(p.high)) whisker(p, group);
      make("circle", { cx: x.at(p.x), cy: y.at(p.y), r: 10, stroke: "var(--ink)", "stroke-width": 2 }, group);
      return group;
    },
  });
}
