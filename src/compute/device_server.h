/* device_server.h - whether somebody listens where a server of ggml's RPC backend is said to be.
 *
 * That backend ends the process when it cannot connect, so it is not asked before this was. A server serves one client
 * after the other: it takes a connection that is closed again, and says nothing to it. */
#ifndef LV_COMPUTE_DEVICE_SERVER_H
#define LV_COMPUTE_DEVICE_SERVER_H

#include "lever.h"

#define LV_DEVICE_SERVER_WAIT_MS 5000

/* "HOST:PORT". LEVER_E_ARGUMENT says what is wrong: the address, its host, or that nobody answers there in time. */
lever_status lv_device_server_check(const char *address, int wait_ms, lever_error *error);

#endif
