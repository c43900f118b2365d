"""The one script of a page: tables that sort, and a matrix that arrow keys walk; without it all can still be read."""

SORTING = """
document.querySelectorAll("table.sortable").forEach(table => {
  const body = table.tBodies[0];
  table.querySelectorAll("th button").forEach((button, column) => button.addEventListener("click", () => {
    const down = button.dataset.order !== "down";
    table.querySelectorAll("th button").forEach(other => delete other.dataset.order);
    button.dataset.order = down ? "down" : "up";
    const value = row => row.cells[column].dataset.v ?? row.cells[column].textContent;
    const order = (a, b) => value(a).localeCompare(value(b), undefined, {numeric: true});
    const numbers = (a, b) => value(a) - value(b);
    const compare = body.rows[0].cells[column].dataset.v === undefined ? order : numbers;
    [...body.rows].sort((a, b) => down ? compare(a, b) : compare(b, a)).forEach(row => body.append(row));
  }));
});
"""

# With the script a matrix is one stop of the Tab key and arrow keys go from cell to cell: left and right through all of
# them row by row, so that each is reached however few there are; up and down to the nearest column. A cell opens in
# place, where a plain link would move the page.
MATRIX = """
document.querySelectorAll(".matrix").forEach(matrix => {
  const cells = [...matrix.querySelectorAll("a")];
  if (!cells.length) return;
  const place = cell => cell.dataset.cell.split(" ").map(Number);
  const only = chosen => cells.forEach(cell => cell.setAttribute("tabindex", cell === chosen ? 0 : -1));
  const mark = () => cells.forEach(cell => {
    const is = cell.getAttribute("href") === location.hash;
    is ? cell.setAttribute("aria-current", "true") : cell.removeAttribute("aria-current");
  });
  const beside = {ArrowLeft: -1, ArrowRight: 1}, across = {ArrowUp: -1, ArrowDown: 1};
  only(cells[0]);
  mark();
  addEventListener("hashchange", mark);
  matrix.addEventListener("focusin", event => only(event.target.closest("a")));
  matrix.addEventListener("keydown", event => {
    const from = event.target.closest("a");
    if (!from || !(event.key in beside || event.key in across)) return;
    event.preventDefault();
    const [row, column] = place(from);
    const away = cell => {
      const [r, c] = place(cell), along = (r - row) * across[event.key];
      return along > 0 ? Math.abs(c - column) * cells.length + along : Infinity;
    };
    const nearest = () => cells.reduce((best, cell) => away(cell) < away(best) ? cell : best, from);
    const next = event.key in beside ? cells[cells.indexOf(from) + beside[event.key]] : nearest();
    if (next) next.focus();
  });
  matrix.addEventListener("click", event => {
    if (!event.target.closest("a")) return;
    const top = scrollY;
    requestAnimationFrame(() => {
      const shown = document.querySelector(".cell:target");
      if (shown && shown.getBoundingClientRect().top < innerHeight) scrollTo({top, behavior: "instant"});
    });
  });
});
"""

SCRIPT = SORTING + MATRIX
