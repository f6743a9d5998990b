// A row a name: bars and boxes.

function rowed(card, figure, plot, width, names, values, paint, lines) {
  const left = clamp(Math.max(...names.map((n) => n.length)) * 6.8 + 12, 40, width * 0.4), tall = names.length > 14 ? 24 : 34;
  const top = figure.references.length ? 26 : 6, h = tall * names.length, w = width - left - 24;
  const svg = make("svg", { width, height: top + h + 46 }, plot);
  const [low, high] = reach([...values, ...figure.references.map((r) => r[1])], 0.05);
  const whole = figure.kind === "bars";
  const span = whole ? [Math.min(0, low), Math.max(0, high)] : [low, high];
  const x = linear(span[0], span[1], left, left + w);
  for (const t of ticks(span[0], span[1], Math.max(2, w / 70))) {
    make("line", { x1: x(t), x2: x(t), y1: top, y2: top + h, class: "grid" }, svg);
    make("text", { x: x(t), y: top + h + 17, "text-anchor": "middle", "font-size": 12, class: "soft" }, svg, spell(t));
  }
  label(svg, figure.y_name, { x: left + w / 2, y: top + h + 37, "text-anchor": "middle" }, w);
  names.forEach((name, k) => {
    label(svg, name, { x: left - 7, y: top + (k + 0.5) * tall + 4, "text-anchor": "end" }, left - 10);
    paint(svg, k, x, top + k * tall, tall);
  });
  for (const [name, value] of figure.references) {
    if (!known(value)) continue;
    make("line", { x1: x(value), x2: x(value), y1: top - 4, y2: top + h, stroke: "var(--ink)", "stroke-dasharray": "5 4", "stroke-width": 1.5 }, svg);
    const late = x(value) > left + w / 2;
    label(svg, `${name} ${spell(value)}`, { x: x(value), y: top - 9, "text-anchor": late ? "end" : "start", class: "soft" }, w / 2);
  }
  pointed(svg, card.name(), {
    at: (px, py) => { const k = Math.floor((py - top) / tall); return k >= 0 && k < names.length ? k : -1; },
    start: 0,
    moved: stepping(names.length),
    lines: (k) => [names[k], ...lines(k), ...(figure.n !== null ? [`n = ${spell(figure.n)}`] : [])],
    mark: (k) => make("rect", { x: left, y: top + k * tall + 1, width: w, height: tall - 2, stroke: "var(--accent)", "stroke-width": 1.5, class: "tip-mark" }, svg),
  });
}

function bars(card, figure, plot, width) {
  const { name, value, low, high } = figure.data;
  rowed(card, figure, plot, width, name, [...value, ...(low || []), ...(high || [])], (svg, k, x, y, tall) => {
    if (!known(value[k])) return;
    const ends = [x(0), x(value[k])].sort((a, b) => a - b);
    make("rect", { x: ends[0], y: y + tall * 0.18, width: Math.max(ends[1] - ends[0], 1), height: tall * 0.64, fill: "var(--s0)", rx: 2, class: "bar" }, svg);
    if (low && known(low[k])) make("path", { d: `M${x(low[k])} ${y + tall / 2}H${x(high[k])}`, stroke: "var(--ink)", "stroke-width": 2 }, svg);
  }, (k) => [`${figure.y_name} ${spell(value[k])} ${low ? interval(low[k], high[k]) : ""}`.trim()]);
}

function quantile(sorted, q) {
  const place = (sorted.length - 1) * q, k = Math.floor(place);
  return sorted[k] + (sorted[Math.min(k + 1, sorted.length - 1)] - sorted[k]) * (place - k);
}

function boxes(card, figure, plot, width) {
  const groups = new Map();
  figure.data.name.forEach((name, k) => {
    if (!groups.has(name)) groups.set(name, []);
    if (known(figure.data.value[k])) groups.get(name).push(figure.data.value[k]);
  });
  const names = [...groups.keys()], sorted = names.map((n) => [...groups.get(n)].sort((a, b) => a - b));
  const five = sorted.map((v) => (v.length ? [0, 0.25, 0.5, 0.75, 1].map((q) => quantile(v, q)) : null));
  rowed(card, figure, plot, width, names, figure.data.value, (svg, k, x, y, tall) => {
    if (!five[k]) return;
    const [least, q1, median, q3, most] = five[k].map(x), mid = y + tall / 2;
    if (sorted[k].length > 2) {
      make("path", { d: `M${least} ${mid}H${q1}M${q3} ${mid}H${most}`, stroke: "var(--soft)", "stroke-width": 1.5 }, svg);
      make("rect", { x: q1, y: y + tall * 0.2, width: Math.max(q3 - q1, 1), height: tall * 0.6, fill: "var(--s0)", "fill-opacity": 0.25, stroke: "var(--s0)", class: "box" }, svg);
      make("path", { d: `M${median} ${y + tall * 0.2}v${tall * 0.6}`, stroke: "var(--s0)", "stroke-width": 3 }, svg);
    }
    sorted[k].forEach((v, i) => make("circle", { cx: x(v), cy: mid + ((i % 3) - 1) * tall * 0.12, r: 3, fill: "var(--s1)", stroke: "var(--paper)" }, svg));
  }, (k) => five[k] ? [`median ${spell(five[k][2])}`, `middle half ${spell(five[k][1])} to ${spell(five[k][3])}`, `all ${spell(five[k][0])} to ${spell(five[k][4])}`, `${sorted[k].length} values`] : ["undefined"]);
}
