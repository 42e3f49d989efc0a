/* The list of the versions that lie beside this one, in the theme's own form. ../versions.js names them and their pages. */
(() => {
  const root = new URL(".", document.currentScript.src); // of this version
  const own = decodeURIComponent(root.pathname.split("/").at(-2));
  const page = new URL(location.pathname, root).href.slice(root.href.length) || "index.html";
  const versions = window.versions || [];
  const current = versions.find(({ name }) => name === own);
  if (!current) return;
  const made = (tag, name, text, ...inside) => {
    const element = document.createElement(tag);
    if (name) element.className = `md-version__${name}`;
    element.append(text, ...inside);
    return element;
  };
  const titled = (tag, name, version) =>
    made(tag, name, version.name, ...(version.alias ? [made("span", "alias", version.alias)] : []));
  const button = titled("button", "current", current);
  button.setAttribute("aria-label", `Version ${own}: select another`);
  const list = made("ul", "list", "");
  for (const version of versions) {
    const link = titled("a", "link", version);
    link.href = new URL(`../${version.name}/${version.pages.includes(page) ? page : "index.html"}`, root);
    list.append(made("li", "item", link));
  }
  const selector = made("div", "", button, list);
  selector.className = "md-version";
  document.querySelector(".md-header__topic").append(selector);
})();
