// Cards, and the page as a whole. A card draws its figure when it comes into view.

const PAPER = { narrow: 321, whole: 455 }; // pixels: beside its text a figure has 8.5 cm (page.css), alone 7 cm of height
let printing = false; // figures are then drawn for paper, so that their letters are not made smaller with them

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
    const save = tag("button", { type: "button", class: "save" }, this.controls, "Save as SVG");
    save.addEventListener("click", () => { const svg = this.plot.querySelector("svg"); if (svg) download(this.name(), "svg", "image/svg+xml", svgOf(svg)); });
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
    this.node.querySelectorAll("[data-at]").forEach((node) => { node.hidden = Number(node.dataset.at) !== this.at; });
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
      select.addEventListener("change", () => { this.pair = select.value.split(",").map(Number); this.draw(); this.list(); });
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
    DRAW[figure.kind](this, figure, this.plot, printing ? this.paper() : Math.max(this.width, 240));
    const svg = this.plot.querySelector("svg"); // with a view box a page of paper can make it smaller
    if (svg) svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${svg.getAttribute("height")}`);
    this.plot.style.minHeight = "0";
    this.plot.removeAttribute("data-lazy");
  }

  paper() { // heat maps are as high as they are wide
    return this.node.classList.contains("beside") || this.figure().kind === "heatmap" ? PAPER.narrow : PAPER.whole;
  }

  list() {
    if (this.details.open) numbers(this.figure(), this.pair, this.details.querySelector(".scroll"));
  }
}

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
document.querySelectorAll(".card[data-kind='table'] .scroll").forEach((box) => saveButton(box, box.getAttribute("aria-label")));
document.querySelectorAll("[data-copy]").forEach((button) => {
  const code = button.parentNode.querySelector("code");
  button.hidden = false;
  button.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(code.textContent); } catch { // a file may have no clipboard
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    said.textContent = "The command is copied.";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
});
let closed = []; // what printing opens, and closes again
addEventListener("beforeprint", () => {
  printing = true;
  cards.forEach((card) => card.draw());
  for (const node of document.querySelectorAll("main details:not([open], .numbers)")) { node.open = true; closed.push(node); }
});
addEventListener("afterprint", () => {
  printing = false;
  cards.forEach((card) => card.draw());
  closed.forEach((node) => { node.open = false; });
  closed = [];
});
addEventListener("scroll", scrolled, { passive: true });

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
