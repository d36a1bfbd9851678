"""Elements named by index tensors and masks: read, written, scattered, chosen."""
