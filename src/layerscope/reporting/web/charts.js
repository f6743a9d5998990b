// Axes, marks, lines and legends; curves and points over them.

function axes(svg, { left, top, w, h }, x, y, figure) {
  for (const t of y.ticks) {
    make("line", { x1: left, x2: left + w, y1: y.at(t), y2: y.at(t), class: "grid" }, svg);
    make("text", { x: left - 7, y: y.at(t) + 4, "text-anchor": "end", "font-size": 12, class: "soft" }, svg, spell(t));
  }
  for (const t of x.ticks) {
    make("line", { x1: x.at(t), x2: x.at(t), y1: top + h, y2: top + h + 4, class: "axis" }, svg);
    make("text", { x: x.at(t), y: top + h + 18, "text-anchor": "middle", "font-size": 12, class: "soft" }, svg, spell(t));
  }
  make("line", { x1: left, x2: left + w, y1: top + h, y2: top + h, class: "axis" }, svg);
  label(svg, figure.x_name, { x: left + w / 2, y: top + h + 38, "text-anchor": "middle" }, w);
  label(svg, figure.y_name, { transform: `translate(14 ${top + h / 2}) rotate(-90)`, "text-anchor": "middle" }, h);
}

function level(svg, { left, w }, y, [name, value]) {
  if (!known(value)) return;
  make("line", { x1: left, x2: left + w, y1: y.at(value), y2: y.at(value), stroke: "var(--soft)", "stroke-dasharray": "5 4", "stroke-width": 1.5 }, svg);
  label(svg, `${name} ${spell(value)}`, { x: left + w, y: y.at(value) - 5, "text-anchor": "end", class: "soft halo" }, w);
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

function frameOf(plot, width, tall) {
  const left = 62, top = 14, bottom = 48;
  const h = width < 460 ? tall * 0.8 : tall;
  const svg = make("svg", { width, height: top + h + bottom }, plot);
  return { svg, left, top, w: width - left - 16, h };
}

function curves(card, figure, plot, width) {
  const all = new Map();
  figure.data.series.forEach((name, k) => {
    if (!all.has(name)) all.set(name, []);
    const d = figure.data;
    all.get(name).push({ x: d.x[k], y: d.y[k], low: d.low[k], high: d.high[k] });
  });
  const names = [...all.keys()];
  legend(card, names);
  const shown = names.filter((name) => !card.off.has(name));
  const points = shown.flatMap((name) => all.get(name));
  const box = frameOf(plot, width, 300), { svg, left, top, w, h } = box;
  const xs = reach(figure.data.x, 0), whole = figure.data.x.every(Number.isInteger);
  const ys = reach([...points.flatMap((p) => [p.y, p.low, p.high]), ...figure.references.map((r) => r[1])], 0.07);
  const x = { at: linear(xs[0], xs[1] > xs[0] ? xs[1] : xs[0] + 1, left + 10, left + w - 10), ticks: ticks(xs[0], Math.max(xs[1], xs[0] + (whole ? 1 : 0.1)), Math.max(2, w / 45), whole).filter((t) => t <= xs[1]) };
  const y = { at: linear(ys[0], ys[1], top + h, top), ticks: ticks(ys[0], ys[1], 6) };
  axes(svg, box, x, y, figure);
  for (const [name, value] of figure.marks) {
    make("line", { x1: x.at(value), x2: x.at(value), y1: top, y2: top + h, stroke: "var(--soft)", "stroke-dasharray": "2 3", "stroke-width": 1.5 }, svg);
    const late = x.at(value) > left + w * 0.7;
    label(svg, name, { x: x.at(value) + (late ? -5 : 5), y: top + 11, "text-anchor": late ? "end" : "start", class: "soft" }, w / 3);
  }
  for (const name of shown) {
    const k = names.indexOf(name), own = all.get(name), stroke = `var(--s${k % 8})`;
    const banded = own.filter((p) => known(p.low) && known(p.high));
    if (banded.length > 1) {
      const edge = [...banded.map((p) => [p.x, p.high]), ...banded.reverse().map((p) => [p.x, p.low])];
      make("polygon", { points: edge.map(([a, b]) => `${x.at(a)},${y.at(b)}`).join(" "), fill: stroke, opacity: 0.18 }, svg);
    }
    let d = "", pen = "M";
    for (const p of own) {
      if (!known(p.y)) { pen = "M"; continue; }
      d += `${pen}${x.at(p.x).toFixed(1)} ${y.at(p.y).toFixed(1)}`;
      pen = "L";
    }
    make("path", { d, fill: "none", stroke, "stroke-width": 2.2, "stroke-dasharray": DASHES[Math.floor(k / 8) % 4], class: "line" }, svg);
    for (const p of own) if (known(p.y)) blob(svg, k, x.at(p.x), y.at(p.y), own.length > 40 ? 2.4 : 4);
  }
  figure.references.forEach((reference) => level(svg, box, y, reference)); // its name stands above the curves
  const places = [...new Set(figure.data.x)].sort((a, b) => a - b);
  pointed(svg, card.name(), {
    at: (px) => places.reduce((best, v, k) => (Math.abs(x.at(v) - px) < Math.abs(x.at(places[best]) - px) ? k : best), 0),
    start: 0,
    moved: stepping(places.length),
    lines: (place) => {
      const lines = [`${figure.x_name} ${spell(places[place])}`];
      for (const name of shown) {
        for (const p of all.get(name)) if (p.x === places[place]) lines.push(`${name}: ${spell(p.y)} ${interval(p.low, p.high)}`.trim());
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
  const shown = all.filter((p) => known(p.x) && known(p.y) && !card.off.has(p.series)).sort((a, b) => a.x - b.x || a.y - b.y);
  const box = frameOf(plot, width, 340), { svg, left, top, w, h } = box;
  const few = shown.length <= 40, stressed = (p) => figure.stressed.includes(p.series);
  const whiskered = (p) => (few || stressed(p)) && known(p.low) && known(p.high);
  const xs = reach(shown.map((p) => p.x), 0.06), ys = reach([...shown.flatMap((p) => (whiskered(p) ? [p.y, p.low, p.high] : [p.y])), ...figure.references.map((r) => r[1])], 0.08);
  const x = { at: linear(xs[0], xs[1], left, left + w), ticks: ticks(xs[0], xs[1], Math.max(2, w / 60), d.x.every(Number.isInteger)) };
  const y = { at: linear(ys[0], ys[1], top + h, top), ticks: ticks(ys[0], ys[1], 6) };
  axes(svg, box, x, y, figure);
  figure.references.forEach((reference) => level(svg, box, y, reference));
  for (const name of figure.joined) {
    const own = shown.filter((p) => p.series === name || (stressed(p) && !figure.joined.includes(p.series)));
    if (own.some((p) => p.series === name)) make("path", { d: "M" + own.map((p) => `${x.at(p.x).toFixed(1)} ${y.at(p.y).toFixed(1)}`).join("L"), fill: "none", stroke: `var(--s${names.indexOf(name) % 8})`, "stroke-width": 1.8 }, svg);
  }
  const whisker = (p, parent) => make("path", { d: `M${x.at(p.x)} ${y.at(p.low)}V${y.at(p.high)}`, stroke: `var(--s${names.indexOf(p.series) % 8})`, "stroke-width": 1.8, opacity: stressed(p) ? 1 : 0.4 }, parent);
  for (const p of [...shown].sort((a, b) => stressed(a) - stressed(b))) {
    if (whiskered(p)) whisker(p, svg);
    blob(svg, names.indexOf(p.series), x.at(p.x), y.at(p.y), stressed(p) ? 7.5 : 4.5).setAttribute("class", "point");
    if (!stressed(p)) continue;
    const late = x.at(p.x) > left + w * 0.6;
    label(svg, p.label, { x: x.at(p.x) + (late ? -12 : 12), y: y.at(p.y) - 10, "text-anchor": late ? "end" : "start", "font-weight": 600, class: "halo" }, w / 2);
  }
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
