"""JavaScript that runs in a page: count its timers, wait until it rests, hide what is out of view."""

from __future__ import annotations

COUNT_TIMERS = """
if (location.protocol === 'file:' && !window.dreamgymTimers) {
  const set = window.setTimeout, clear = window.clearTimeout, waiting = new Set();
  window.dreamgymTimers = waiting;
  window.setTimeout = (task, delay = 0, ...rest) => {
    const id = set(() => {
      waiting.delete(id);
      typeof task === 'function' ? task(...rest) : (0, eval)(task);
    }, delay);
    if (delay <= 1000) waiting.add(id);
    return id;
  };
  window.clearTimeout = id => { waiting.delete(id); clear(id); };
  window.dreamgymSleep = milliseconds => new Promise(done => set(done, milliseconds));
}
"""
"""Counts the pending timers of a second or less in `window.dreamgymTimers`, on pages from files alone."""
WAIT_FOR_REST = """async ([rest, most]) => {
  const sleep = window.dreamgymSleep || (milliseconds => new Promise(done => setTimeout(done, milliseconds)));
  const began = performance.now();
  let changed = began;
  const watch = new MutationObserver(() => { changed = performance.now(); });
  watch.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
  while (performance.now() - began < most) {
    await sleep(10);
    const moving = document.getAnimations().some(
        one => one.playState === 'running' && one.effect?.getTiming().iterations !== Infinity
      )
      || (window.jQuery && window.jQuery(':animated').length > 0)
      || (window.dreamgymTimers && window.dreamgymTimers.size > 0);
    if (moving) changed = performance.now();
    if (document.readyState === 'complete' && performance.now() - changed >= rest) break;
  }
  watch.disconnect();
}"""
"""Waits for `rest` milliseconds without an animation, a pending timer or a change of the document.

Ends after `most` milliseconds in any case. Both are the page's own time.
"""
LARGE_PAGE = 2000
"""Number of elements from which on the accessibility tree leaves out what is out of view."""
HIDE_OUT_OF_VIEW = """large => {
  if (document.getElementsByTagName('*').length < large) return;
  const seen = '[browsergym_visibility_ratio]:not([browsergym_visibility_ratio="0"])';
  const hide = parent => {
    for (const one of parent.children) {
      if (['OPTION', 'OPTGROUP'].includes(one.tagName) || one.hasAttribute('aria-hidden')) continue;
      if (one.matches('[browsergym_visibility_ratio="0"]') && !one.querySelector(seen)) {
        one.setAttribute('aria-hidden', 'true');
        one.setAttribute('dreamgym-hidden', '');
      } else hide(one);
    }
  };
  hide(document.body);
}"""
SHOW_HIDDEN = """() => {
  for (const one of document.querySelectorAll('[dreamgym-hidden]')) {
    one.removeAttribute('aria-hidden');
    one.removeAttribute('dreamgym-hidden');
  }
}"""
