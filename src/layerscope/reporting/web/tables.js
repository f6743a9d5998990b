// Tables that sort, and the numbers behind a figure.

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

function saveButton(box, title) {
  const save = tag("button", { type: "button", class: "save" }, null, "Save as CSV");
  save.addEventListener("click", () => download(title, "csv", "text/csv", csvOf(box.querySelector("table"))));
  box.after(save);
}

function numbers(figure, pair, box) {
  let columns = figure.data;
  if (figure.kind === "heatmap") {
    const count = figure.columns.labels.length, r = (k) => Math.floor(k / count), c = (k) => k % count;
    const rows = new Set(part(figure.rows, pair[0])), columnsOf = new Set(part(figure.columns, pair[1]));
    const shown = (k) => rows.has(r(k)) && columnsOf.has(c(k)) && (known(figure.values[k]) || k in figure.why);
    const cells = range(figure.values.length).filter(shown);
    columns = {};
    if (figure.rows.models.some(Boolean)) columns["row model"] = cells.map((k) => figure.rows.models[figure.rows.of[r(k)]]);
    columns["row"] = cells.map((k) => figure.rows.labels[r(k)]);
    if (figure.columns.models.some(Boolean)) columns["column model"] = cells.map((k) => figure.columns.models[figure.columns.of[c(k)]]);
    columns["column"] = cells.map((k) => figure.columns.labels[c(k)]);
    columns[figure.value_name] = cells.map((k) => figure.values[k]);
    for (const extra of ["low", "high", "bias", "baseline", "p_value", "calibrated"]) if (figure[extra]) columns[extra] = cells.map((k) => figure[extra][k]);
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
  if (!box.nextElementSibling) saveButton(box, figure.title);
}
