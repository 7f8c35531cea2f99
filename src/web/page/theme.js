// Light, dark, or as the system has it. Loaded before the page is drawn, so that it does not flash.

const ORDER = ["", "light", "dark"];
const LABELS = { "": "Theme: as the system", light: "Theme: light", dark: "Theme: dark" };

function kept() {
  try {
    return localStorage.getItem("quire.theme") ?? "";
  } catch {
    return "";
  }
}

export function applyTheme(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

export const themeLabel = () => LABELS[document.documentElement.dataset.theme ?? ""];

// To the next one; it is kept.
export function nextTheme() {
  const now = document.documentElement.dataset.theme ?? "";
  const next = ORDER[(ORDER.indexOf(now) + 1) % ORDER.length];
  applyTheme(next);
  try {
    localStorage.setItem("quire.theme", next);
  } catch {
    // It lasts as long as the page.
  }
}

applyTheme(kept());
