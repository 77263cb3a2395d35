"""English is the only language; its ``formats`` are where Django looks for them."""
