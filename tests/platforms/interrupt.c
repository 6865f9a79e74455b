/*
 * Runs a program on Windows, presses Ctrl-C in its console after a line on standard input, and ends with its status.
 *
 *     interrupt PROGRAM ARGUMENTS...
 */
#include <stdio.h>
#include <string.h>
#include <windows.h>

int main(void) {
    STARTUPINFOA startup = {.cb = sizeof startup};
    PROCESS_INFORMATION process;
    DWORD status = 99;
    char line[8], *command = strchr(GetCommandLineA(), ' ');

    startup.dwFlags = STARTF_USESTDHANDLES;
    startup.hStdInput = INVALID_HANDLE_VALUE;
    startup.hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE);
    startup.hStdError = GetStdHandle(STD_ERROR_HANDLE);
    FreeConsole();
    if (command == NULL || !AllocConsole() ||
        !CreateProcessA(NULL, command + 1, NULL, NULL, TRUE, 0, NULL, NULL, &startup, &process)) {
        fprintf(stderr, "cannot start: error %lu\n", GetLastError());
        return 98;
    }
    (void)!fgets(line, sizeof line, stdin);
    SetConsoleCtrlHandler(NULL, TRUE); /* this program goes on */
    if (!GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0)) {
        fprintf(stderr, "cannot press Ctrl-C: error %lu\n", GetLastError());
    }
    if (WaitForSingleObject(process.hProcess, 60000) != WAIT_OBJECT_0) {
        fprintf(stderr, "the program does not end\n");
        TerminateProcess(process.hProcess, 97);
    }
    GetExitCodeProcess(process.hProcess, &status);
    return (int)status;
}
