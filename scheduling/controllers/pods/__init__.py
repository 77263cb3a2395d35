"""Pods that no agent ends: ``deletion`` ends what was deleted, ``podgc`` what was left behind."""
