// Not needed to read the page: it says what the pointer or the arrow keys are at, and finds a rank.
"use strict";
(() => {
  const rows = document.querySelector(".rows");
  if (!rows) return;
  const pointed = document.getElementById("pointed");
  const hint = "Point at a block, or go to a row and press → and ←, to read what it is.";
  const row = "details.row > summary, .lines > li";
  let at = null;

  // Blocks of single ranks in large groups have no words of their own.
  const words = (block) => {
    const title = block.querySelector("title");
    if (title) return title.textContent;
    const kind = document.querySelector(`.legend .${block.classList[0]}`);
    const [from, took] = ["x", "width"].map(
      (name) => ((parseFloat(block.getAttribute(name)) * rows.dataset.seconds) / 100).toFixed(1),
    );
    return `${kind ? kind.closest("li").textContent.trim() : ""}: ${took} s, from ${from} s`;
  };

  const tell = (block) => {
    if (at) at.classList.remove("at");
    at = block;
    if (at) at.classList.add("at");
    pointed.textContent = at ? words(at) : hint;
  };

  const step = (line, by) => {
    const blocks = [...line.querySelectorAll("svg rect")];
    if (!blocks.length) return;
    const now = blocks.indexOf(at);
    const from = now < 0 && by < 0 ? blocks.length : now;
    tell(blocks[Math.min(Math.max(from + by, 0), blocks.length - 1)]);
  };

  const toRow = (line, by) => {
    const all = line.matches("li")
      ? [...line.parentElement.children]
      : [...rows.querySelectorAll(":scope > details > summary")];
    const next = all[all.indexOf(line) + by];
    if (!next) return;
    if (line.matches("li")) [line.tabIndex, next.tabIndex] = [-1, 0];
    next.focus();
  };

  rows.addEventListener("pointerover", (event) => {
    const block = event.target.closest("rect");
    if (block) tell(block);
  });
  rows.addEventListener("keydown", (event) => {
    const line = event.target.closest(row);
    const keys = {
      ArrowRight: () => step(line, 1),
      ArrowLeft: () => step(line, -1),
      ArrowDown: () => toRow(line, 1),
      ArrowUp: () => toRow(line, -1),
      Escape: () => tell(null),
    };
    if (!line || !(event.key in keys) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  });

  const find = document.getElementById("find");
  const found = document.getElementById("found");
  const wanted = () => find.value.trim().toLowerCase().replace(/^ranks?\s+/, "");
  find.addEventListener("input", () => {
    for (const old of rows.querySelectorAll(".found")) old.classList.remove("found");
    const word = wanted();
    found.textContent = "";
    if (!word) return;
    const all = [...rows.querySelectorAll("[data-who]")];
    const named = (one) => one.dataset.who.toLowerCase().replace(/^ranks?\s+/, "").split(" ");
    const hits = all.filter((one) => named(one).includes(word));
    for (const one of hits) {
      one.classList.add("found");
      for (let up = one.parentElement; up !== rows; up = up.parentElement) {
        if (up.tagName === "DETAILS") up.open = true;
      }
    }
    found.textContent = hits.length ? `${hits.length} found` : "none";
    if (hits.length) hits[0].scrollIntoView({ block: "center", behavior: "instant" });
  });

  for (const list of rows.querySelectorAll(".lines")) {
    [...list.children].forEach((one, index) => {
      one.tabIndex = index ? -1 : 0; // one stop of the Tab key for all of them
    });
  }
  document.querySelector(".tools").hidden = false;
  pointed.hidden = false;
  tell(null);
})();
