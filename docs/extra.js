// What can be scrolled can be reached with the keyboard, and the search has a name: the theme leaves both out.
function makeReachable() {
  for (const node of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) {
    if (node.scrollWidth > node.clientWidth) node.tabIndex = 0;
  }
  document.querySelector(".md-search[role=dialog]")?.setAttribute("aria-label", "Search");
}
makeReachable();
addEventListener("resize", makeReachable);
new MutationObserver(makeReachable).observe(document.body, { childList: true, subtree: true });
