/* Sets the theme before the first paint, so that a dark page never flashes white. src/app/theme.ts goes on from here. */
(function () {
  var choice = null;
  try {
    choice = localStorage.getItem("edt.theme");
  } catch (_) {
    /* storage is closed: the system's theme it is */
  }
  var dark = choice === "dark" || (choice !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
