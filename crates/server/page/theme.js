// Applies the saved colour theme before the first paint.
// Classic script: a module would run after the first paint and flash the wrong theme.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem("tabla.theme");
  } catch {
    // Storage is blocked: follow the system theme.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
