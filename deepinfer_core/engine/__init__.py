"""From requests to outputs: admission, the overlapped step loop, the device step."""
