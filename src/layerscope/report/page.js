"use strict";
// Draws every figure from the JSON beside it, when it comes into view. Names from data become text nodes, never markup.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const STOPS = JSON.parse(document.getElementById("colours").textContent);
  const LEVELS = 128; // colours of a heat map: one path each
  const SHAPES = ["circle", "square", "triangle", "diamond", "cross"];
  const DASHES = ["", "7 3", "2 3", "8 3 2 3"];
  const tip = document.getElementById("tip");
  const said = document.getElementById("said");
  let serial = 0;

  // ---- small tools

  function make(name, attributes, parent, text) {
    const node = document.createElementNS(SVG, name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.appendChild(node);
    return node;
  }

  function tag(name, attributes, parent, text) {
    const node = document.createElement(name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.appendChild(node);
    return node;
  }

  const known = (v) => typeof v === "number";
  const clamp = (v, low, high) => Math.min(Math.max(v, low), high);
  const range = (n) => Array.from({ length: n }, (_, k) => k);

  function spell(v) {
    if (!known(v)) return "undefined";
    if (Number.isInteger(v)) return v.toLocaleString("en").replace(/,/g, "\u2009");
    const size = Math.abs(v);
    return size >= 1e5 || size < 1e-4 ? v.toExponential(2) : String(Number(v.toPrecision(4)));
  }

  const interval = (low, high) => (known(low) && known(high) ? `[${spell(low)}, ${spell(high)}]` : "");

  function shorten(text, room) { // to so many pixels of 12 px letters; the end of a path says most
    const most = Math.max(Math.floor(room / 6.6), 3);
    return text.length <= most ? text : "\u2026" + text.slice(text.length - most + 1);
  }

  function label(parent, text, attributes, room) {
    const node = make("text", { "font-size": 12, ...attributes }, parent, shorten(text, room));
    if (node.textContent !== text) make("title", {}, node, text);
    return node;
  }

  const channels = STOPS.map((hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16)));
  function colour(share) {
    const place = clamp(share, 0, 1) * (channels.length - 1);
    const k = Math.min(Math.floor(place), channels.length - 2);
    const mixed = channels[k].map((c, i) => Math.round(c + (channels[k + 1][i] - c) * (place - k)));
    return `rgb(${mixed.join(",")})`;
  }

  function ticks(low, high, count, whole) {
    let step = Math.pow(10, Math.floor(Math.log10((high - low) / count)));
    for (const factor of [1, 2, 5, 10]) {
      if ((high - low) / (step * factor) <= count) { step *= factor; break; }
    }
    if (whole) step = Math.max(1, Math.round(step));
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-6; k++) found.push(Number((k * step).toPrecision(12)));
    return found;
  }

  function reach(values, pad) {
    const seen = values.filter(known);
    if (!seen.length) return [0, 1];
    let low = seen[0], high = seen[0];
    for (const v of seen) { if (v < low) low = v; if (v > high) high = v; }
    const room = high > low ? (high - low) * pad : Math.abs(high) * pad || pad || 0.5;
    return [low - room, high + room];
  }

  // ---- what a reader points at, by pointer or by keys

  function show(lines, box) {
    tip.replaceChildren();
    lines.forEach((line, k) => tag(k ? "div" : "b", {}, tip, line));
    tip.hidden = false;
    const width = tip.offsetWidth, height = tip.offsetHeight;
    const right = box.right + 12, below = box.bottom + 12;
    tip.style.left = clamp(right + width > innerWidth ? box.left - width - 12 : right, 4, Math.max(4, innerWidth - width - 4)) + "px";
    tip.style.top = clamp(below + height > innerHeight ? box.top - height - 12 : below, 4, Math.max(4, innerHeight - height - 4)) + "px";
  }

  function hide() { tip.hidden = true; }

  // places: how many there are; at(event point) -> place or -1; moved(place, key) -> place; lines(place); mark(place) -> node
  function pointed(svg, name, { at, start, moved, lines, mark }) {
    let place = -1, marked = null;
    svg.setAttribute("tabindex", "0");
    svg.setAttribute("role", "application");
    svg.setAttribute("aria-roledescription", "figure");
    svg.setAttribute("aria-label", name + ". Arrow keys go from value to value.");
    function go(next, box, aloud) {
      if (marked) marked.remove();
      marked = null;
      place = next;
      if (next < 0) { hide(); return; }
      marked = mark(next);
      const words = lines(next);
      show(words, box || marked.getBoundingClientRect());
      if (aloud) said.textContent = words.join(", ");
    }
    const follow = (event) => {
      const frame = svg.getBoundingClientRect();
      const next = at(event.clientX - frame.left, event.clientY - frame.top);
      go(next, { left: event.clientX, right: event.clientX, top: event.clientY, bottom: event.clientY }, false);
    };
    svg.addEventListener("pointermove", follow);
    svg.addEventListener("pointerdown", follow);
    svg.addEventListener("pointerleave", () => go(-1));
    svg.addEventListener("blur", () => go(-1));
    svg.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { go(-1); return; }
      if (!/^(Arrow(Left|Right|Up|Down)|Home|End)$/.test(event.key)) return;
      event.preventDefault();
      go(place < 0 ? start : moved(place, event.key), null, true);
    });
  }

  const stepping = (count) => (place, key) =>
    key === "Home" ? 0 : key === "End" ? count - 1 : clamp(place + (key === "ArrowLeft" || key === "ArrowUp" ? -1 : 1), 0, count - 1);

  // ---- heat maps

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
        const dark = (v - low) / (high - low) < 0.6;
        make("text", { x: left + (j + 0.5) * cell, y: y(i) + cell / 2 + 4, "text-anchor": "middle", "font-size": 11, style: `fill:${dark ? "#fff" : "#111"};pointer-events:none` }, svg, Math.abs(v) >= 99.5 ? v.toFixed(0) : v.toFixed(2).replace(/^(-?)0\./, "$1."));
      }));
    }
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
        if (figure.baseline && known(figure.baseline[k])) found.push(`shuffled rows give ${spell(figure.baseline[k])}`);
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

  // ---- axes, marks and lines that several figures share

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
    label(svg, `${name} ${spell(value)}`, { x: left + w, y: y.at(value) - 5, "text-anchor": "end", class: "soft" }, w);
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

  // ---- curves

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
    figure.references.forEach((reference) => level(svg, box, y, reference));
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

  // ---- rows: bars and boxes

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

  // ---- points

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
    const whisker = (p, parent) => make("path", { d: `M${x.at(p.x)} ${y.at(p.low)}V${y.at(p.high)}`, stroke: `var(--s${names.indexOf(p.series) % 8})`, "stroke-width": 1.8 }, parent);
    for (const p of [...shown].sort((a, b) => stressed(a) - stressed(b))) {
      if (whiskered(p)) whisker(p, svg);
      blob(svg, names.indexOf(p.series), x.at(p.x), y.at(p.y), stressed(p) ? 7.5 : 4.5).setAttribute("class", "point");
      if (!stressed(p)) continue;
      const late = x.at(p.x) > left + w * 0.6;
      label(svg, p.label, { x: x.at(p.x) + (late ? -12 : 12), y: y.at(p.y) - 10, "text-anchor": late ? "end" : "start", "font-weight": 600 }, w / 2);
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

  // ---- tables

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const name = head.textContent, button = tag("button", { type: "button" });
      button.textContent = name;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const numeric = head.classList.contains("number"), sign = down ? -1 : 1;
        const key = (row) => (numeric ? parseFloat(row.cells[column].dataset.value) : row.cells[column].textContent);
        const rows = [...table.tBodies[0].rows];
        rows.sort((a, b) => {
          const [u, v] = [key(a), key(b)];
          if (numeric && (isNaN(u) || isNaN(v))) return isNaN(u) - isNaN(v); // what is undefined comes last
          return sign * (numeric ? u - v : u.localeCompare(v, "en", { numeric: true }));
        });
        table.tBodies[0].append(...rows);
      });
    });
  }

  function numbers(figure, box) {
    let columns = figure.data;
    if (figure.kind === "heatmap") {
      const count = figure.columns.labels.length, cells = range(figure.values.length).filter((k) => known(figure.values[k]) || k in figure.why);
      const r = (k) => Math.floor(k / count), c = (k) => k % count;
      columns = {};
      if (figure.rows.models.some(Boolean)) columns["row model"] = cells.map((k) => figure.rows.models[figure.rows.of[r(k)]]);
      columns["row"] = cells.map((k) => figure.rows.labels[r(k)]);
      if (figure.columns.models.some(Boolean)) columns["column model"] = cells.map((k) => figure.columns.models[figure.columns.of[c(k)]]);
      columns["column"] = cells.map((k) => figure.columns.labels[c(k)]);
      columns[figure.value_name] = cells.map((k) => figure.values[k]);
      for (const extra of ["low", "high", "baseline"]) if (figure[extra]) columns[extra] = cells.map((k) => figure[extra][k]);
      if (figure.reasons.length) columns.reason = cells.map((k) => (k in figure.why ? figure.reasons[figure.why[k]] : ""));
    }
    const names = Object.keys(columns).filter((name) => columns[name].some((v) => v !== null && v !== ""));
    const table = tag("table", { class: "sortable" }, null), head = tag("tr", {}, tag("thead", {}, table)), body = tag("tbody", {}, table);
    const numeric = names.map((name) => columns[name].every((v) => v === null || known(v)));
    names.forEach((name, i) => tag("th", { scope: "col", ...(numeric[i] ? { class: "number" } : {}) }, head, name));
    const rows = names.length ? columns[names[0]].length : 0;
    for (let k = 0; k < rows; k++) {
      const row = tag("tr", {}, body);
      names.forEach((name, i) => {
        const v = columns[name][k];
        tag("td", numeric[i] ? { class: "number", "data-value": v === null ? "" : v } : {}, row, numeric[i] ? spell(v) : v === null ? "" : v);
      });
    }
    sortable(table);
    box.replaceChildren(table);
  }

  // ---- cards

  const DRAW = { heatmap, curve: curves, bars, box: boxes, scatter };

  class Card {
    constructor(node) {
      this.node = node;
      this.plot = node.querySelector(".plot");
      this.controls = node.querySelector(".controls");
      this.selects = [...node.querySelectorAll("select[data-facet]")];
      this.details = node.querySelector(".numbers");
      this.at = 0;
      this.pair = [-1, -1];
      this.stretch = false;
      this.off = new Set();
      this.width = 0;
      this.selects.forEach((select) => select.addEventListener("change", () => this.switched(select)));
      this.details.addEventListener("toggle", () => this.list());
    }

    get figures() { // parsed when first needed
      if (!this.parsed) {
        const source = this.node.querySelector("script[type='application/json']");
        this.parsed = JSON.parse(source.textContent).figures;
        source.remove();
      }
      return this.parsed;
    }

    figure() { return this.figures[this.at]; }

    name() { return this.figure().title; }

    switched(select) {
      const wanted = Object.fromEntries(this.selects.map((s) => [s.dataset.facet, s.value]));
      const agree = (facets) => Object.keys(wanted).filter((k) => facets[k] === wanted[k]).length;
      let best = -1, most = -1;
      this.figures.forEach((figure, k) => { // where no figure has all that is chosen, the nearest that has the last choice
        if (figure.facets[select.dataset.facet] !== select.value) return;
        if (agree(figure.facets) > most) { most = agree(figure.facets); best = k; }
      });
      this.at = best;
      const facets = this.figure().facets;
      this.selects.forEach((s) => { if (s.dataset.facet in facets) s.value = facets[s.dataset.facet]; });
      const figure = this.figure();
      this.node.querySelector(".shows").textContent = figure.shows;
      this.node.querySelector(".reading span").textContent = figure.reading;
      const caveat = this.node.querySelector(".caveat");
      caveat.hidden = !figure.caveat;
      caveat.querySelector("span").textContent = figure.caveat;
      this.ready = false;
      this.draw();
      this.list();
    }

    options() { // what a heat map can be asked besides its facets
      this.controls.querySelectorAll("[data-own]").forEach((node) => node.remove());
      const figure = this.figure();
      if (figure.kind !== "heatmap") return;
      const [rows, columns] = [figure.rows.models, figure.columns.models];
      const key = JSON.stringify([rows, columns]);
      if (key !== this.key) this.pair = [-1, -1];
      this.key = key;
      if (rows.length * columns.length > 1) {
        const holder = tag("label", { "data-own": "" }, this.controls, "pair ");
        const select = tag("select", { "data-pair": "" }, holder);
        tag("option", { value: "-1,-1" }, select, "all pairs");
        rows.forEach((a, i) => columns.forEach((b, j) => tag("option", { value: `${i},${j}` }, select, `${a} \u2013 ${b}`)));
        select.value = this.pair.join(",");
        select.addEventListener("change", () => { this.pair = select.value.split(",").map(Number); this.draw(); });
      }
      const holder = tag("label", { "data-own": "" }, this.controls);
      const box = tag("input", { type: "checkbox" }, holder);
      box.checked = this.stretch;
      holder.append("stretch colours");
      box.addEventListener("change", () => { this.stretch = box.checked; this.draw(); });
    }

    draw() {
      hide();
      const figure = this.figure();
      if (!this.ready) { this.options(); this.ready = true; }
      this.width = this.plot.clientWidth;
      const height = this.plot.offsetHeight;
      this.plot.style.minHeight = height + "px"; // the page does not jump while it is redrawn
      this.plot.replaceChildren();
      DRAW[figure.kind](this, figure, this.plot, Math.max(this.width, 240));
      this.plot.style.minHeight = "0";
      this.plot.removeAttribute("data-lazy");
    }

    list() {
      if (this.details.open) numbers(this.figure(), this.details.querySelector(".scroll"));
    }
  }

  // ---- the page

  const cards = [...document.querySelectorAll(".card")].filter((node) => node.dataset.kind in DRAW).map((node) => new Card(node));
  const byPlot = new Map(cards.map((card) => [card.plot, card]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      seen.unobserve(entry.target);
      byPlot.get(entry.target).draw();
      sized.observe(entry.target);
    }
  }, { rootMargin: "300px" });
  const sized = new ResizeObserver((entries) => {
    for (const entry of entries) {
      const card = byPlot.get(entry.target);
      if (Math.abs(card.plot.clientWidth - card.width) > 2) requestAnimationFrame(() => card.draw());
    }
  });
  cards.forEach((card) => seen.observe(card.plot));
  document.querySelectorAll("table.sortable").forEach(sortable);
  addEventListener("beforeprint", () => cards.forEach((card) => { if (card.plot.hasAttribute("data-lazy")) card.draw(); }));
  addEventListener("scroll", hide, { passive: true });

  if (matchMedia("(max-width: 64rem)").matches) document.querySelector(".contents details").open = false;

  const toggle = document.getElementById("theme"), root = document.documentElement;
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : preferred.matches);
  const name = () => { toggle.textContent = dark() ? "Light" : "Dark"; toggle.setAttribute("aria-label", dark() ? "Light colours" : "Dark colours"); };
  try { const kept = localStorage.getItem("layerscope-theme"); if (kept === "light" || kept === "dark") root.dataset.theme = kept; } catch { /* a file may have no storage */ }
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("layerscope-theme", root.dataset.theme); } catch { /* the same */ }
    name();
  });
  preferred.addEventListener("change", name);
  name();
})();
