(function () {
  let theme = new URLSearchParams(location.search).get("theme");
  try { theme = theme || localStorage.getItem("mrt-theme"); } catch (error) { /* a page without storage */ }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
