// Tables that are wider than the page become lists of cells, each with its column's heading (see
// site.css). Short cells of many columns follow one another. On a phone, code that would have to be
// broken within a word counts as too wide.
const MANY_COLUMNS = 4;
const PHONE = window.matchMedia("(max-width: 46em)");

function stackWideTables() {
  for (const table of document.querySelectorAll("article .table-wrapper > table")) {
    const names = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.cells].forEach((cell, i) => (cell.dataset.column = names[i] || ""));
    }
    table.classList.remove("stacked", "many");
    table.classList.toggle("unbroken", PHONE.matches);
    const isWide = table.scrollWidth > table.parentElement.clientWidth;
    table.classList.remove("unbroken");
    if (isWide) {
      table.classList.add("stacked");
      table.classList.toggle("many", names.length > MANY_COLUMNS);
    }
  }
}

window.addEventListener("load", stackWideTables);
window.addEventListener("resize", stackWideTables);
