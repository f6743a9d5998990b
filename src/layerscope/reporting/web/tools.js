// Small tools, numbers as people read them, and colours. Names from data become text nodes, never markup.

const SVG = "http://www.w3.org/2000/svg";
const STOPS = JSON.parse(document.getElementById("colours").textContent);
const LEVELS = 128; // colours of a heat map: one path each
const SHAPES = ["circle", "square", "triangle", "diamond", "cross"];
const DASHES = ["", "7 3", "2 3", "8 3 2 3"];
const tip = document.getElementById("tip");
const said = document.getElementById("said");
let serial = 0;

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

// Black or white, whichever stands out more: on any colour that is a contrast of 4.5 or more.
function inkOn(rgb) {
  const [red, green, blue] = rgb.match(/\d+/g).map((level) => { const c = level / 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
  const light = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return (light + 0.05) ** 2 > 1.05 * 0.05 ? "#000000" : "#ffffff";
}

function download(title, ending, type, text) {
  const name = title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 60) || "figure";
  const link = tag("a", { href: URL.createObjectURL(new Blob([text], { type })), download: `${name}.${ending}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function csvOf(table) { // as layerscope writes it: no text is one that a spreadsheet computes
  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const plain = (text) => quoted(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text);
  const cell = (node) => (node.classList.contains("number") && node.tagName === "TD" ? node.dataset.value : plain(node.textContent.trim()));
  return [...table.rows].map((row) => [...row.cells].map(cell).join(",")).join("\n") + "\n";
}

const LOOKS = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "font-family", "font-size", "font-weight", "text-anchor", "paint-order"];
function svgOf(svg) { // with the page's style inside, so that it looks alike anywhere
  const copy = svg.cloneNode(true), from = [svg, ...svg.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((node, k) => {
    const looks = getComputedStyle(node);
    LOOKS.forEach((name) => { const value = looks.getPropertyValue(name); if (value) { to[k].style.setProperty(name, value); to[k].removeAttribute(name); } });
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return new XMLSerializer().serializeToString(copy);
}

const known = (v) => typeof v === "number";
const clamp = (v, low, high) => Math.min(Math.max(v, low), high);
const range = (n) => Array.from({ length: n }, (_, k) => k);

const RAISED = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079";

function powerOfTen(v) { // 2.5 × 10⁷; a power itself without its 1
  const [factor, exponent] = v.toExponential(3).split("e+"), short = String(Number(factor));
  return (short === "1" ? "10" : `${short} \u00d7 10`) + [...exponent].map((digit) => RAISED[digit]).join("");
}

function spell(v) {
  if (!known(v)) return "undefined";
  if (Math.abs(v) >= 1e7) return powerOfTen(v);
  if (Number.isInteger(v)) return v.toLocaleString("en").replace(/,/g, "\u2009");
  const size = Math.abs(v);
  return size >= 1e5 || size < 1e-4 ? v.toExponential(2) : String(Number(v.toPrecision(4)));
}

const interval = (low, high) => (known(low) && known(high) ? `[${spell(low)}, ${spell(high)}]` : "");

function shorten(text, room) { // to so many pixels of 12 px letters; the end of a path says most, and the beginning of words
  const most = Math.max(Math.floor(room / 6.6), 3);
  if (text.length <= most) return text;
  return text.includes("/") ? "\u2026" + text.slice(text.length - most + 1) : text.slice(0, most - 1) + "\u2026";
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
