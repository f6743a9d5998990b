// What a reader points at, by pointer or by keys.

function show(lines, box) {
  tip.replaceChildren();
  lines.forEach((line, k) => tag(k ? "div" : "b", {}, tip, line));
  tip.hidden = false;
  const width = tip.offsetWidth, height = tip.offsetHeight;
  const right = box.right + 12, below = box.bottom + 12;
  tip.style.left = clamp(right + width > innerWidth ? box.left - width - 12 : right, 4, Math.max(4, innerWidth - width - 4)) + "px";
  tip.style.top = clamp(below + height > innerHeight ? box.top - height - 12 : below, 4, Math.max(4, innerHeight - height - 4)) + "px";
}

let again = null; // shows the box again where its value has moved to; none under a pointer

function hide() {
  tip.hidden = true;
  again = null;
}

function scrolled() {
  if (again) again(); else hide();
}

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
    again = box ? null : () => show(words, marked.getBoundingClientRect());
    if (box) show(words, box); else again();
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
