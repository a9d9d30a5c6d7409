/* Debian's busybox has no nmeter. The specs call it for the time of day only: "%3t" is the time with three decimals. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

int main(int count, char **words) {
    struct timeval now;
    const char *at = count > 1 ? words[count - 1] : "%t";
    gettimeofday(&now, NULL);
    const struct tm *day = localtime(&now.tv_sec);
    while (*at) {
        char *end = NULL;
        long decimals = *at == '%' ? strtol(at + 1, &end, 10) : 0;
        if (end == NULL || *end != 't') {
            putchar(*at++);
            continue;
        }
        printf("%02d:%02d:%02d", day->tm_hour, day->tm_min, day->tm_sec);
        if (decimals > 0) {
            char digits[8];
            snprintf(digits, sizeof digits, "%06ld", (long)now.tv_usec);
            printf(".%.*s", (int)(decimals > 6 ? 6 : decimals), digits);
        }
        at = end + 1;
    }
    putchar('\n');
    return 0;
}
