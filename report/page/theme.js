// Light and dark.

function setTheme(theme, keep) {
  document.documentElement.dataset.theme = theme;
  if (keep) try { localStorage.setItem("hadal-theme", theme); } catch { /* browsers may forbid storage for a page from disk */ }
  for (const paint of painters) paint();
}
function startTheme() {
  let kept = null;
  try { kept = localStorage.getItem("hadal-theme"); } catch { /* as above */ }
  const dark = matchMedia("(prefers-color-scheme: dark)");
  setTheme(kept || (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  let before = null;
  addEventListener("beforeprint", () => ((before = document.documentElement.dataset.theme), setTheme("light")));
  addEventListener("afterprint", () => setTheme(before || "light"));
}
const otherTheme = () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark", true);
